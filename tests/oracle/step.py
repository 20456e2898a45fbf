"""A request, or a step file's object, from input to result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from tests.oracle import philox
from tests.oracle.logprobs import EmittedRow, Entry, ModeReport, report
from tests.oracle.margins import Margins
from tests.oracle.methods import Stage, argmax, decide
from tests.oracle.ranges import check_request
from tests.oracle.request import LOSSY_METHODS, Json, Refusal, Request
from tests.oracle.rows import BadRow, TargetRow, read_draft, read_target
from tests.oracle.step_file import load_step

FIRST_PRINTED_AS_STRING = 2**53


@dataclass(frozen=True)
class Outcome:
    """One request's result. `accepted_uncut` is the accepted length before any stop or length cut."""

    status: str
    seed: int
    lossy: bool
    margins: Margins
    token_ids: list[int] = field(default_factory=list)
    num_accepted: int = 0
    finish_reason: str | None = None
    bad_row: int | None = None
    logprobs: dict[str, ModeReport] = field(default_factory=dict)
    acceptance_probabilities: list[float] | None = None
    accepted_uncut: int = 0


@dataclass(frozen=True)
class StepOutcome:
    """A step's result object (section "result" of the step file) and, unless refused, one Outcome per request."""

    result: dict[str, Json]
    outcomes: list[Outcome] = field(default_factory=list)
    refusal: Refusal | None = None


def run_step(step: Mapping[str, Json], seeds: Sequence[int] | None = None) -> StepOutcome:
    """Run one step-file object. `seeds`, one per request, stand in where a request brings no seed of its own."""
    try:
        requests = load_step(step)
        for index, request in enumerate(requests):
            check_request(request, index)
    except Refusal as refusal:
        return StepOutcome({"error": {"code": "INVALID_ARGUMENT", "message": str(refusal)}}, refusal=refusal)
    outcomes = [verify_request(r, None if seeds is None else seeds[i]) for i, r in enumerate(requests)]
    return StepOutcome({"requests": [to_json(o) for o in outcomes]}, outcomes)


def verify_request(request: Request, seed: int | None = None) -> Outcome:
    """Run one checked request; `seed` is used where it brings none (0 if neither is given)."""
    params, margins = request.params, Margins()
    seed = params.seed if params.seed is not None else (seed or 0)
    target = cache(partial(read_target, request, margins=margins))
    stage = Stage(
        drafts=request.draft_token_ids[: request.num_drawn],
        target=target,
        draft=partial(read_draft, request, margins=margins),
        accept_uniform=partial(philox.accept_uniform, seed, params.position),
        draw_uniform=partial(philox.draw_uniform, seed, params.position),
        margins=margins,
    )
    lossy = params.method in LOSSY_METHODS
    try:
        decision = decide(stage, params)
    except BadRow as bad:
        return Outcome("INVALID_LOGITS", seed, lossy, margins, bad_row=bad.row)
    uncut = [*stage.drafts[: decision.accepted], decision.final_token]
    token_ids, finish_reason = cut(uncut, params.stop_token_ids, params.max_tokens)
    rows = [_emitted_row(request, target(j), j, token_id) for j, token_id in enumerate(token_ids)]
    return Outcome(
        status="OK",
        seed=seed,
        lossy=lossy,
        margins=margins,
        token_ids=token_ids,
        num_accepted=min(decision.accepted, len(token_ids)),
        finish_reason=finish_reason,
        logprobs={mode: report(mode, rows, params) for mode in params.logprobs_modes},
        acceptance_probabilities=_acceptance(request, stage, len(token_ids)),
        accepted_uncut=decision.accepted,
    )


def cut(
    token_ids: Sequence[int], stop_token_ids: Sequence[int], max_tokens: int | None
) -> tuple[list[int], str | None]:
    """Keep up to the first stop id, stop included, and at most max_tokens; a stop wins at the same token."""
    kept: list[int] = []
    for token_id in token_ids:
        kept.append(token_id)
        if token_id in stop_token_ids:
            return kept, "stop"
        if len(kept) == max_tokens:
            return kept, "length"
    return kept, None


def _emitted_row(request: Request, target: TargetRow, row: int, token_id: int) -> EmittedRow:
    supplied = request.params.target_logsumexp
    logsumexp = None if supplied is None else supplied[row]
    return EmittedRow(token_id, request.target_logits[row], target.processed, logsumexp)


def _acceptance(request: Request, stage: Stage, num_emitted: int) -> list[float] | None:
    """min(1, p / q) for the draft tokens up to the first rejection, as far as tokens are emitted at their rows.

    A method that does not read draft logits decides as if the draft were a point mass, and greedy's p is one itself.
    """
    params = request.params
    if not params.acceptance_probabilities:
        return None
    probabilities: list[float] = []
    greedy = params.temperature == 0.0 and params.method not in LOSSY_METHODS
    reads_draft = params.method in ("standard", "block") and not greedy
    for j, x in enumerate(stage.drafts[:num_emitted]):
        target = stage.target(j)
        p = float(x == argmax(target)) if greedy else target.mass(x)
        q = stage.draft(j).mass(x) if reads_draft else 1.0
        probabilities.append(0.0 if p == 0.0 else 1.0 if q == 0.0 else min(1.0, p / q))
    return probabilities


def to_json(outcome: Outcome) -> dict[str, Json]:
    """One request's entry of the result object: 64-bit integers from 2**53 and non-finite numbers as strings."""
    entry: dict[str, Json] = {
        "status": outcome.status,
        "token_ids": outcome.token_ids,
        "num_accepted": outcome.num_accepted,
        "seed": outcome.seed if outcome.seed < FIRST_PRINTED_AS_STRING else str(outcome.seed),
        "finish_reason": outcome.finish_reason,
        "lossy": outcome.lossy,
        "bad_row": outcome.bad_row,
        "logprobs": {mode: _mode_json(r) for mode, r in outcome.logprobs.items()},
    }
    if outcome.acceptance_probabilities is not None:
        entry["acceptance_probabilities"] = outcome.acceptance_probabilities
    return entry


def _mode_json(mode: ModeReport) -> dict[str, Json]:
    return {
        "tokens": [_number(x) for x in mode.tokens],
        "ranks": mode.ranks,
        "cumulative": None if mode.cumulative is None else _number(mode.cumulative),
        "top": [_entries(entries) for entries in mode.top],
        "chosen": [_entries(entries) for entries in mode.chosen],
    }


def _entries(entries: Sequence[Entry]) -> list[dict[str, Json]]:
    return [{"token_id": token_id, "value": _number(value)} for token_id, value in entries]


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
