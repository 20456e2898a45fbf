"""Compares a product's result object with the oracle's, key by key, and says which differences rounding excuses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.oracle.margins import FILTERS, Margins
from tests.oracle.request import Json
from tests.oracle.step import StepOutcome, run_step

LOGPROB_TOLERANCE = 1e-4
FP32_RELATIVE = 4 * 2.0**-24
"""A value is returned in fp32 after a subtraction and a division: three roundings of 2**-24, and one to spare.
It only matters beyond |value| = 420, where 1e-4 is finer than fp32 itself."""
PROBABILITY_TOLERANCE = 1e-5
"""Acceptance probabilities: p and q each within 1e-6 relative, with room for fp32 storage."""


@dataclass(frozen=True)
class Difference:
    """One difference; `excused` if a decision that it hangs on lies within rounding of its threshold."""

    request: int | None
    field: str
    product: Json
    oracle: Json
    excused: bool = False
    decision: str = ""
    margin: float = math.inf

    def __str__(self) -> str:
        why = f" (excused: {self.decision}, margin {self.margin:.1e})" if self.excused else ""
        return f"request {self.request}, {self.field}: product {self.product}, oracle {self.oracle}{why}"


def excuse_threshold(step: Mapping[str, Json]) -> float:
    """Margins below this excuse a difference: 1e-6, or 1e-5 where some logits are fp32."""
    dtypes = (step.get("dtype"), step.get("draft_dtype", step.get("dtype")))
    return 1e-5 if "float32" in dtypes else 1e-6


def check_against_oracle(step: Mapping[str, Json], product: Mapping[str, Json]) -> list[Difference]:
    """Run the oracle on `step`, with the seeds that the product returned for seedless requests, and compare."""
    answers = product.get("requests")
    seeds = None if answers is None else [int(r.get("seed") or 0) for r in answers]
    expected_count = len(step.get("requests") or [])
    oracle = run_step(step, seeds if seeds is not None and len(seeds) == expected_count else None)
    return compare_step(product, oracle, excuse_threshold(step))


def compare_step(product: Mapping[str, Json], oracle: StepOutcome, threshold: float) -> list[Difference]:
    """Every difference between two result objects of one step. Messages and reasons of refusals are not compared."""
    expected = oracle.result
    if "error" in expected or "error" in product:
        codes = [(r.get("error") or {}).get("code") for r in (product, expected)]
        return [] if codes[0] == codes[1] else [Difference(None, "error", product.get("error"), expected.get("error"))]
    answers = product.get("requests") or []
    if len(answers) != len(expected["requests"]):
        return [Difference(None, "requests", len(answers), len(expected["requests"]))]
    found: list[Difference] = []
    for index, (got, want) in enumerate(zip(answers, expected["requests"], strict=True)):
        found += _Comparison(index, oracle.outcomes[index].margins, threshold).run(got, want)
    return found


@dataclass
class _Comparison:
    """Compares one request."""

    index: int
    margins: Margins
    threshold: float

    def run(self, got: Mapping[str, Json], want: Mapping[str, Json]) -> list[Difference]:
        found = [
            self._difference(name, got.get(name), want[name], None)
            for name in ("status", "bad_row", "token_ids", "num_accepted", "finish_reason")
            if got.get(name) != want[name]
        ]
        found += [
            Difference(self.index, name, got.get(name), want[name])
            for name in ("seed", "lossy")
            if str(got.get(name)) != str(want[name])
        ]
        if got.get("status") != "OK" or want["status"] != "OK":
            return found
        # What is reported of a token depends only on the tokens before it, so a common prefix is still comparable.
        common = _common_prefix(got["token_ids"], want["token_ids"])
        same = got["token_ids"] == want["token_ids"]
        modes = got.get("logprobs") or {}
        if set(modes) != set(want["logprobs"]):
            found.append(Difference(self.index, "logprobs", sorted(modes), sorted(want["logprobs"])))
        for mode in set(modes) & set(want["logprobs"]):
            found += self._mode(mode, modes[mode], want["logprobs"][mode], common, same)
        return found + (self._acceptance(got, want) if same else [])

    def _difference(self, name: str, got: Json, want: Json, names: tuple[str, ...] | None) -> Difference:
        """A difference that hangs on any decision (names None), or on those named."""
        least = self.margins.smallest(names)
        return Difference(self.index, name, got, want, least.distance < self.threshold, least.decision, least.distance)

    def _mode(
        self, mode: str, got: Mapping[str, Json], want: Mapping[str, Json], common: int, same: bool
    ) -> list[Difference]:
        wrong: list[tuple[str, Json, Json]] = []
        for name, equal in (
            ("tokens", values_equal),
            ("ranks", _equal),
            ("top", _entries_equal),
            ("chosen", _entries_equal),
        ):
            ours, theirs = _per_token(want.get(name), common, name), _per_token(got.get(name), common, name)
            if len(ours) != len(theirs):
                wrong.append((name, theirs, ours))
            else:
                wrong += [
                    (f"{name}[{i}]", g, w) for i, (g, w) in enumerate(zip(theirs, ours, strict=True)) if not equal(g, w)
                ]
        if same and not _sums_equal(got.get("cumulative"), want["cumulative"], common):
            wrong.append(("cumulative", got.get("cumulative"), want["cumulative"]))
        # Raw values hang on no decision; processed ones on what the filters keep.
        names: tuple[str, ...] = () if mode.startswith("raw") else FILTERS
        return [self._difference(f"{mode}.{name}", g, w, names) for name, g, w in wrong]

    def _acceptance(self, got: Mapping[str, Json], want: Mapping[str, Json]) -> list[Difference]:
        name = "acceptance_probabilities"
        ours, theirs = want.get(name), got.get(name)
        if ours is None and not theirs:
            return []
        ours, theirs = ours or [], theirs or []
        close = len(ours) == len(theirs) and all(
            abs(a - b) <= PROBABILITY_TOLERANCE for a, b in zip(ours, theirs, strict=True)
        )
        return [] if close else [self._difference(name, theirs, ours, FILTERS)]


def values_equal(got: float | str, want: float | str) -> bool:
    """Whether a returned value is within 1e-4 (or fp32's own resolution, if that is coarser) of the reference."""
    g, w = float(got), float(want)
    if not (math.isfinite(g) and math.isfinite(w)):
        return g == w
    return abs(g - w) <= max(LOGPROB_TOLERANCE, FP32_RELATIVE * abs(w))


def _sums_equal(got: float | str | None, want: float | str | None, count: int) -> bool:
    if got is None or want is None:
        return got is want
    g, w = float(got), float(want)
    if not (math.isfinite(g) and math.isfinite(w)):
        return g == w
    return abs(g - w) <= max(count * LOGPROB_TOLERANCE, FP32_RELATIVE * abs(w))


def _equal(got: Json, want: Json) -> bool:
    return bool(got == want)


def _entries_equal(got: Sequence[Mapping[str, Json]], want: Sequence[Mapping[str, Json]]) -> bool:
    if [e["token_id"] for e in got] != [e["token_id"] for e in want]:
        return False
    return all(values_equal(g["value"], w["value"]) for g, w in zip(got, want, strict=True))


def _per_token(values: Sequence[Json] | None, common: int, name: str) -> list[Json]:
    """The first `common` entries; a table that was not asked for may be absent, empty or hold empty rows."""
    rows = list(values or [])[:common]
    if name in ("top", "chosen") and not any(rows):
        return [[]] * common
    return rows


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    length = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        length += 1
    return length
