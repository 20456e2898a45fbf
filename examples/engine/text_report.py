"""The demo's findings for people: coloured on a terminal, plain text anywhere else."""

from collections.abc import Iterator
from math import exp

from rich.console import Console
from rich.text import Text

from engine.checks import Check
from engine.corpus import PARAGRAPH_MARK, Vocabulary
from engine.findings import Findings, percentiles_ms
from engine.runs import Request, Run
from engine.token_rows import token_row

PARAGRAPH_SIGN = "¶"
INDENT = " " * 5


def print_report(findings: Findings, console: Console) -> None:
    """Print everything, most telling last."""
    vocabulary = findings.corpus.vocabulary
    _print_setting(findings, console)
    for run in (findings.shown, findings.other):
        _print_run(run, vocabulary, console)
    _print_rows(findings.shown, vocabulary, console)
    _heading("Checks", console)
    for check in findings.checks:
        console.print(_check(check), soft_wrap=True)
    failed = sum(not check.passed for check in findings.checks)
    total = len(findings.checks)
    verdict = f"{failed} of {total} checks FAILED" if failed else f"all {total} checks hold"
    console.print(Text(f"\n{verdict}; {findings.seconds:.1f} s in all", style="bold"), soft_wrap=True)


def _print_setting(findings: Findings, console: Console) -> None:
    corpus, models = findings.corpus, findings.models
    size = f"{corpus.num_topics} topics, {len(corpus.vocabulary) - 1:,} distinct words"
    orders = f"target {models.target.order}-gram, draft {models.draft.order}-gram"
    trained = f"trained in {models.seconds:.1f} s on {len(corpus.training_ids):,} tokens"
    perplexities = f"{exp(models.target_nats):.0f} for the target, {exp(models.draft_nats):.0f} for the draft"
    _heading("Speculative decoding with sampler-service", console)
    for name, value in (
        ("text", f"Python's language reference (pydoc_data.topics): {size}"),
        ("models", f"{orders}, vocabulary {models.target.vocab_size:,}, {trained}"),
        ("perplexity", f"{perplexities}, on {len(corpus.held_out_ids):,} tokens that neither has seen"),
        ("service", findings.service),
    ):
        _fact(name, value, console)


def _print_run(run: Run, vocabulary: Vocabulary, console: Console) -> None:
    first, last = run.requests[0].seed, run.requests[-1].seed
    _heading(f"Temperature {run.settings.params.temperature:g}, seeds {first} to {last}", console)
    for number, request in enumerate(run.requests, start=1):
        lines = _text(request, vocabulary).wrap(console, console.width - len(INDENT))
        for i, line in enumerate(lines):
            line.rstrip()
            console.print(Text(INDENT if i else f"{f'[{number}]':<{len(INDENT)}}").append_text(line), soft_wrap=True)
    console.print()
    for name, value in _numbers(run):
        _fact(name, value, console)


def _text(request: Request, vocabulary: Vocabulary) -> Text:
    """The prompt in bold, then the new text, draft tokens that stood in green."""

    def shown(token_id: int) -> str:
        return " " + vocabulary.words[token_id].replace(PARAGRAPH_MARK, PARAGRAPH_SIGN)

    text = Text("".join(map(shown, request.prompt)).lstrip(), style="")
    text.stylize("bold")
    for token, stood in zip(request.emitted, request.stood, strict=True):
        text.append(shown(token.token_id), style="green" if stood else "")
    return text


def _numbers(run: Run) -> Iterator[tuple[str, str]]:
    shares = [
        f"{i}: {c.accepted / c.drafted:.0%} ({c.accepted}/{c.drafted})"
        for i, c in enumerate(run.acceptance_by_position, start=1)
        if c.drafted
    ]
    yield "accepted by position", "  ".join(shares) or "nothing was drafted"
    yield "tokens per step", f"{run.tokens_per_step:.2f} of at most {run.settings.draft_length + 1} for each prompt"
    for name, seconds in (("step latency, ms", run.verify_seconds), ("models, ms", run.model_seconds)):
        numbers = "  ".join(f"{key} {value:.2f}" for key, value in percentiles_ms(seconds).items())
        yield name, f"{numbers}  (of {len(seconds)} steps of the whole batch)"


def _print_rows(run: Run, vocabulary: Vocabulary, console: Console) -> None:
    _heading(f"Tokens at temperature {run.settings.params.temperature:g}, with the target's logprobs", console)
    for number, request in enumerate(run.requests, start=1):
        console.print(Text(f"[{number}] {vocabulary.decode(request.prompt)} ...", style="bold"), soft_wrap=True)
        for token in request.emitted:
            console.print(token_row(token, vocabulary), markup=False, highlight=False, soft_wrap=True)


def _check(check: Check) -> Text:
    verdict = Text("ok      ", style="bold green") if check.passed else Text("FAILED  ", style="bold red")
    return verdict.append(f"{check.title}\n        {check.finding}", style="not bold default")


def _fact(name: str, value: str, console: Console) -> None:
    console.print(Text(f"{name:<22}", style="bold").append(value, style="not bold"), soft_wrap=True)


def _heading(title: str, console: Console) -> None:
    console.print(Text(f"\n{title}\n{'-' * len(title)}", style="bold cyan"), soft_wrap=True)
