"""The command ``sampler-loadtest``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sampler_client import Method, SamplerError
from sampler_loadtest import __version__
from sampler_loadtest.addresses import is_local
from sampler_loadtest.callers import CallFailed
from sampler_loadtest.loadtest import MOST_CALLERS, LoadTest
from sampler_loadtest.report import show
from sampler_loadtest.runner import MOST_CALLS, Extent
from sampler_loadtest.workload import DTYPES, Workload

MOST_SECONDS = 3600.0


class ExitStatus(IntEnum):
    """How the command ended."""

    ANSWERED = 0
    FAILED = 1
    """Some steps were not answered, or some of their requests had another status than OK."""
    USAGE = 2
    UNREACHABLE = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.rate and options.pause:
        parser.error("--rate says when each step starts, and --pause too: give one of them")
    if not (options.allow_remote or is_local(options.address)):
        parser.error(f"{options.address} is not on this host; if it is yours to load, say --allow-remote")
    test = _load_test(options)
    console = Console(stderr=True)
    try:
        report = _run(test, console)
    except (CallFailed, SamplerError) as error:
        print(f"sampler-loadtest: {error.code}: {error}", file=sys.stderr)
        return ExitStatus.UNREACHABLE if error.code == "UNAVAILABLE" else ExitStatus.FAILED
    except KeyboardInterrupt:
        return 128 + 2
    if options.json == "-":
        print(json.dumps(report, indent=1))
    else:
        if options.json:
            Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        show(report, Console())
    service = report["service"]
    fine = service["status_codes"].keys() == {"OK"} and not service["failed_requests"]
    return ExitStatus.ANSWERED if fine else ExitStatus.FAILED


def _run(test: LoadTest, console: Console) -> dict[str, Any]:
    """With live progress where somebody looks."""
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} steps"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    seconds = test.extent.seconds
    with shown as progress:
        task = progress.add_task("preparing", total=None if seconds else test.extent.count // test.turns)

        def on_progress(side: str, turn: int, calls: int) -> None:
            progress.update(task, description=f"{side}, turn {turn + 1} of {test.turns}", completed=calls)

        return test.run(on_progress)


def _load_test(options: argparse.Namespace) -> LoadTest:
    count = options.count or (MOST_CALLS if options.duration else 1000)
    return LoadTest(
        address=options.address,
        workload=Workload(
            batch=options.batch,
            drafts=options.drafts,
            vocab_size=options.vocab_size,
            dtype=options.dtype,
            draft_logits=options.draft_logits,
            draft_noise=options.draft_noise,
            method=Method(options.method),
            temperature=options.temperature,
            acceptance=options.acceptance,
            top_logprobs=options.top_logprobs,
            seed=options.seed,
        ),
        stream=options.transport == "stream",
        concurrency=options.concurrency,
        extent=Extent(count=count, seconds=options.duration, rate=options.rate, pause=options.pause * 1e-3),
        turns=options.turns,
        warmup=options.warmup,
        echo=options.echo,
        timeout=options.timeout,
    )


def _parser() -> argparse.ArgumentParser:
    workload = Workload()
    parser = argparse.ArgumentParser(
        prog="sampler-loadtest",
        description="Puts a sampler service under load, with the floor of its transport measured beside it.",
        epilog="Exit status: 0 all answered, 1 some failed, 2 usage, 3 service unreachable.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    address = os.environ.get("SAMPLER_ADDRESS")
    parser.add_argument(
        "--address",
        metavar="ADDR",
        default=address,
        required=address is None,
        help="unix:/path or host:port; else SAMPLER_ADDRESS",
    )
    parser.add_argument("--allow-remote", action="store_true", help="take addresses of other hosts; without the echo")
    how = parser.add_argument_group("how much")
    how.add_argument("--concurrency", type=_whole(1, MOST_CALLERS), default=1, help="callers, a connection each")
    how.add_argument("--count", type=_whole(1, MOST_CALLS), help="steps; 1000 where no duration is given")
    how.add_argument("--duration", type=_number(0.0, MOST_SECONDS), metavar="SECONDS", help="instead of, or within")
    how.add_argument("--rate", type=_number(0.0, 1e6), help="steps a second, latencies from their intended start")
    how.add_argument(
        "--pause", type=_number(0.0, 60_000.0, or_zero=True), default=0.0, metavar="MS", help="of a caller, each step"
    )
    how.add_argument("--transport", choices=("stream", "unary"), default="stream", help="the call to use")
    how.add_argument("--turns", type=_whole(1, 1000), default=4, help="service and echo take so many turns each")
    how.add_argument("--warmup", type=_whole(0, 100_000), default=20, help="uncounted calls of each caller")
    how.add_argument("--echo", action=argparse.BooleanOptionalAction, default=True, help="measure the floor too")
    how.add_argument("--timeout", type=_number(0.0, 600.0), default=30.0, help="seconds for each call")
    what = parser.add_argument_group("what a step is")
    what.add_argument("--batch", type=_whole(1, 4096), default=workload.batch, help="requests in a step")
    what.add_argument("--drafts", type=_whole(0, 128), default=workload.drafts, help="draft tokens of a request")
    what.add_argument("--vocab-size", type=_whole(2, 1 << 20), default=workload.vocab_size, help="of the logits")
    what.add_argument("--dtype", choices=tuple(DTYPES), default=workload.dtype, help="of the logits")
    what.add_argument("--draft-logits", action=argparse.BooleanOptionalAction, default=True, help="send them")
    what.add_argument("--draft-noise", type=float, default=workload.draft_noise, help="how far drafts stray, logits")
    what.add_argument("--method", choices=[m.value for m in Method], default=workload.method.value, help="of all")
    what.add_argument("--temperature", type=float, default=workload.temperature, help="of target and draft")
    what.add_argument("--acceptance", type=float, default=workload.acceptance, help="for --method synthetic")
    what.add_argument("--top-logprobs", type=_whole(0, 256), default=workload.top_logprobs, help="entries a row")
    what.add_argument("--seed", type=_whole(0, 2**63 - 1), default=workload.seed, help="of everything random")
    parser.add_argument("--json", metavar="FILE", help="write the report there; - is standard output, without tables")
    return parser


def _whole(low: int, high: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not in {low}..{high}")
        return value

    return number


def _number(above: float, high: float, *, or_zero: bool = False) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = float(text)
        if not (above < value <= high or (or_zero and value == 0)):
            raise argparse.ArgumentTypeError(f"{text} must be above {above:g} and at most {high:g}")
        return value

    return number
