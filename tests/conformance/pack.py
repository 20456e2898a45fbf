"""Where the pack lies, how it is made from its rules, and how results are held to it.

``python -m tests.conformance.pack`` writes all files anew; a test compares.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.conformance.method_rules import METHOD_RULES
from tests.conformance.processing_rules import PROCESSING_RULES
from tests.conformance.report_rules import REPORT_RULES
from tests.conformance.rule import VOCAB, Rule
from tests.oracle.refusals import illegal_steps
from tests.oracle.request import Json
from tests.oracle.step import StepOutcome, run_step

PACK = Path(__file__).parents[2] / "conformance"
STEPS, EXPECTED = PACK / "steps", PACK / "expected"
RULES = (*METHOD_RULES, *PROCESSING_RULES, *REPORT_RULES)
REFUSALS = "refusals"
"""The file of steps that are refused, one a line."""

MARGIN = 1e-3
"""No decision comes nearer to its threshold: 100 times what fp32 may be off, so that no excuse is needed."""

TRIES = 4000


def steps_of(rule: Rule) -> list[dict[str, Json]]:
    """One step with requests that show the rule, each by another result than without it.

    Raises:
        AssertionError: Too few of many random requests show it.
    """
    rng = np.random.default_rng(zlib.crc32(rule.name.encode()))
    kept: list[dict[str, Json]] = []
    for _ in range(TRIES):
        made = rule.make(rng)
        outcome = run_step(_step(rule, made))
        assert outcome.refusal is None, f"{rule.name}: {outcome.refusal}"
        if outcome.outcomes[0].margins.smallest().distance < MARGIN or not _shows(rule, made, outcome):
            continue
        kept.append(made)
        if len(kept) == rule.count:
            return [_step(rule, *kept)]
    raise AssertionError(f"{rule.name}: {len(kept)} of {TRIES} random requests show the rule")


def expected_of(step: dict[str, Json]) -> dict[str, Json]:
    """The oracle's result; ranks that were not asked for are null."""
    result = run_step(step).result
    for asked, got in zip(step["requests"], result["requests"], strict=True):
        if not asked["params"].get("ranks", True):
            got["logprobs"] = {mode: numbers | {"ranks": None} for mode, numbers in got["logprobs"].items()}
    return result


def _step(rule: Rule, *requests: dict[str, Json]) -> dict[str, Json]:
    return {"vocab_size": VOCAB, "dtype": rule.dtype, "requests": list(requests)}


def _shows(rule: Rule, made: dict[str, Json], outcome: StepOutcome) -> bool:
    if not rule.contrast:
        return True
    other = run_step(_step(rule, rule.without(made)))
    assert other.refusal is None, f"{rule.name} without its rule: {other.refusal}"
    return other.result != outcome.result


def files() -> Iterator[tuple[str, str, str]]:
    """(name, text of the steps, text of the expected results) of each file of the pack."""
    for rule in RULES:
        steps = steps_of(rule)
        yield rule.name, _lines(steps), _lines([expected_of(step) for step in steps])
    # Messages are each sampler's own.
    refused = [step for _, step in illegal_steps()]
    yield REFUSALS, _lines(refused), _lines([{"error": {"code": "INVALID_ARGUMENT"}}] * len(refused))


def table() -> str:
    """The list of rules, for the pack's README."""
    rows = [f"| {rule.name} | {rule.says} |" for rule in RULES]
    return "\n".join(["| file | what it shows |", "|---|---|", *rows, f"| {REFUSALS} | {_REFUSALS} |"])


_REFUSALS = "Parameters out of range, ids out of range and contradictions are INVALID_ARGUMENT, for the whole step."


def read(path: Path) -> list[dict[str, Json]]:
    """The objects of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def _lines(objects: list[dict[str, Json]]) -> str:
    return "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in objects)


def main() -> None:
    """Write the pack."""
    for folder in (STEPS, EXPECTED):
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.jsonl"):
            old.unlink()
    for name, steps, expected in files():
        (STEPS / f"{name}.jsonl").write_text(steps)
        (EXPECTED / f"{name}.jsonl").write_text(expected)
    print(table())


if __name__ == "__main__":
    main()
