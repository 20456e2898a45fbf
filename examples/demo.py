"""Speculative decoding with the sampling service, and the proof that it is exact: `python examples/demo.py --help`."""

import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from types import FrameType
from typing import NoReturn

from rich.console import Console
from rich.progress import Progress

from engine.connection import connect
from engine.corpus import Corpus, load_corpus
from engine.demonstration import demonstrate
from engine.findings import Findings
from engine.json_report import json_report
from engine.models import TRAINING_PARTS, Models, train
from engine.options import SAMPLING_TEMPERATURE, parse_options
from engine.remote import RequestFailed
from engine.runs import Settings
from engine.service import ServiceFailed
from engine.text_report import print_report
from engine.verifier import Params
from sampler_client import SamplerError

ALL_HOLD, CHECK_FAILED, NO_SERVICE = 0, 1, 3
"""Exit status; 2 is a wrong command line."""

PLAIN_WIDTH = 120
"""Columns of the text view where it does not go to a terminal."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo with command-line `arguments`; returns the exit status."""
    started = perf_counter()
    corpus = load_corpus()
    options = parse_options(arguments, len(corpus.prompts))
    greedy = Settings(Params(0.0, options.top), options.tokens, options.draft_length, options.seed)
    sampled = replace(greedy, params=Params(options.temperature or SAMPLING_TEMPERATURE, options.top))
    progress = Console(stderr=True)
    models = _train(corpus, progress)
    try:
        with connect(options.address) as (verifier, service), progress.status("decoding and checking"):
            prompts = corpus.prompts[: options.prompts]
            done = demonstrate(
                models, verifier, prompts, sampled=sampled, greedy=greedy, samples_per_prompt=options.samples
            )
    except (ServiceFailed, SamplerError, RequestFailed) as error:
        print(f"demo: {error}", file=sys.stderr)
        return NO_SERVICE
    runs = (done.greedy, done.sampled) if options.temperature == 0 else (done.sampled, done.greedy)
    findings = Findings(corpus, models, service, *runs, done.checks, perf_counter() - started)
    if options.json:
        print(json.dumps(json_report(findings), ensure_ascii=False, indent=1))
    else:
        print_report(findings, Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH))
    return ALL_HOLD if findings.passed else CHECK_FAILED


def _train(corpus: Corpus, console: Console) -> Models:
    with Progress(console=console) as progress:
        task = progress.add_task("training the language models", total=TRAINING_PARTS)
        return train(corpus, lambda: progress.advance(task))


def _end(number: int, _: FrameType | None) -> NoReturn:
    """Leave as by any exit: a signal's default would skip the end of the service."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGHUP, _end)
    sys.exit(main())
