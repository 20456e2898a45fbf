"""Every feature of a step at real size on a device: the same step on the CPU, and what each adds to the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_cases import Shape, step
from benchmarks.graph_timing import Run, capture, microseconds
from sampler_kernels import DraftBlock, LogprobsMode, Method, Ragged, SamplingParams, Step, StepResult, verify
from sampler_kernels.backends import backend as backend_of
from sampler_kernels.checks import checked
from sampler_kernels.planning.plan import plan

HISTORY = 2000
"""Ids of prompt and of output."""

PENALTIES: Mapping[str, Any] = {"repetition_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": 0.1}
FILTERS: Mapping[str, Any] = {"min_p": 0.01, "top_k": 200, "top_p": 0.9}

FEATURES: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "greedy": {"temperature": 0.0},
    "top_p": {"top_p": 0.9},
    "top_k": {"top_k": 50},
    "min_p": {"min_p": 0.05},
    "all filters": FILTERS,
    "strict": {"method": Method.STRICT},
    "block": {"method": Method.BLOCK},
    "typical": {"method": Method.TYPICAL},
    "relaxed": {"method": Method.RELAXED, "relaxed_top_n": 20, "relaxed_margin": 3.0},
    "synthetic": {"method": Method.SYNTHETIC, "synthetic_rates": [0.7] * 8},
    "penalties": PENALTIES,
    "bias": {"logit_bias": {i * 997: 2.0 for i in range(100)}},
    "bad words": {"bad_words": [[1], [2, 3], [5, 6, 7]]},
    "min_tokens": {"min_tokens": 10**6, "stop_token_ids": [0, 1]},
    "mask": {"allowed_token_ids": range(0, 100_000, 2)},
    "block, all at once": {"method": Method.BLOCK, **PENALTIES, **FILTERS},
}
"""Parameters by name, each on top of a temperature of 0.7."""


@dataclass(frozen=True)
class Compared:
    """How a step came out on two backends.

    Attributes:
        requests: How many there were.
        differ: Which came out otherwise in tokens, counts or status.
        logprob_error: The largest difference of a number that both report, of those that did not.
    """

    requests: int
    differ: list[str]
    logprob_error: float


def features_step(shape: Shape, kind: str, noise: float, params: Sequence[Mapping[str, Any]], device: Any) -> Step:  # noqa: ANN401
    """One request for each parameter set over and over, with a history each, drafts drawn from their logits."""
    batch = step(shape, kind, noise, 11, device)
    rng = np.random.default_rng(3)
    history = torch.from_numpy(rng.zipf(1.3, shape.requests * HISTORY).clip(max=shape.vocab) - 1)
    text = Ragged(history, [i * HISTORY for i in range(shape.requests + 1)])
    fits = [_within(one, shape.vocab) for one in params]
    return Step(
        target_logits=batch.target.blocks[0],
        draft_token_ids=batch.draft_token_ids,
        draft_lengths=[shape.drafts] * shape.requests,
        draft_blocks=[DraftBlock(batch.draft.blocks[0])],
        params=[SamplingParams(**one) for one in fits],
        params_index=[r % len(params) for r in range(shape.requests)],
        seeds=list(range(shape.requests)),
        positions=[r * 17 for r in range(shape.requests)],
        prompt_token_ids=text,
        output_token_ids=text,
    )


def _within(params: Mapping[str, Any], vocab: int) -> dict[str, Any]:
    """The parameters without ids that the vocabulary lacks."""
    fit: dict[str, Any] = {"temperature": 0.7, **params}
    if "allowed_token_ids" in fit:
        fit["allowed_token_ids"] = [i for i in fit["allowed_token_ids"] if i < vocab]
    if "logit_bias" in fit:
        fit["logit_bias"] = {i: v for i, v in fit["logit_bias"].items() if i < vocab}
    return fit


def on_host(given: Step) -> Step:
    """The same step with its tensors on the host."""
    return replace(
        given,
        target_logits=given.target_logits.cpu(),
        draft_token_ids=given.draft_token_ids.cpu(),
        draft_blocks=[DraftBlock(block.logits.cpu()) for block in given.draft_blocks],
    )


def compare(vocab: int, kind: str, noise: float, device: torch.device, rounds: int = 2) -> Compared:
    """All features in one batch, with all modes, top logprobs, ranks and acceptance probabilities, on both backends."""
    report = {
        "logprobs_modes": list(LogprobsMode),
        "top_logprobs": 20,
        "logprob_token_ids": [3, 5],
        "acceptance_probabilities": True,
    }
    params = [{**given, **report, "stop_token_ids": given.get("stop_token_ids", [7])} for given in FEATURES.values()]
    given = features_step(Shape(len(params) * rounds, 3, vocab), kind, noise, params, device)
    mine, truth = verify(given, backend="triton"), verify(on_host(given), backend="cpu")
    names = list(FEATURES)
    same = [_same_tokens(mine, truth, r) for r in range(len(truth.status))]
    return Compared(
        requests=len(same),
        differ=[names[r % len(names)] for r, equal in enumerate(same) if not equal],
        logprob_error=_error(mine, truth, same),
    )


def _same_tokens(mine: StepResult, truth: StepResult, r: int) -> bool:
    ours, theirs = (one.token_ids[one.cu_tokens[r] : one.cu_tokens[r + 1]].tolist() for one in (mine, truth))
    columns = ("num_accepted", "status", "finish_reason", "bad_row")
    return ours == theirs and all(getattr(mine, name)[r] == getattr(truth, name)[r] for name in columns)


def _error(mine: StepResult, truth: StepResult, same: Sequence[bool]) -> float:
    """The largest difference of values and top values, where tokens and entries are the same; ranks must be."""
    worst = 0.0
    for mode, numbers in truth.logprobs.items():
        other = mine.logprobs[mode]
        for r in (r for r, equal in enumerate(same) if equal):
            ours, theirs = (slice(one.cu_tokens[r], one.cu_tokens[r + 1]) for one in (mine, truth))
            np.testing.assert_array_equal(other.ranks[ours], numbers.ranks[theirs], err_msg=f"ranks, {mode.value}")
            worst = max(worst, _difference(other.values[ours], numbers.values[theirs]))
            top, true_top = (
                slice(one.cu_top[at.start], one.cu_top[at.stop]) for one, at in ((other, ours), (numbers, theirs))
            )
            np.testing.assert_array_equal(other.top_ids[top], numbers.top_ids[true_top], err_msg=f"top, {mode.value}")
            worst = max(worst, _difference(other.top_values[top], numbers.top_values[true_top]))
    return worst


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    finite = np.isfinite(theirs)
    np.testing.assert_array_equal(ours[~finite], theirs[~finite])
    return float(np.abs(ours[finite].astype(np.float64) - theirs[finite]).max(initial=0.0))


def runs_of(given: Step) -> Run:
    """Everything from the processors to the emitted tokens, planned beforehand: what a graph replays."""
    operations = backend_of("triton")
    planned = plan(given, checked(given, "triton"), operations.device)

    def run() -> None:
        batch = replace(planned.batch, target=operations.processors(planned.batch))
        of_target, of_draft = operations.all_stats(
            batch.target, planned.target_temperature, batch.draft, planned.draft_temperature, raw=True
        )
        decision = operations.rejection(batch, of_target, of_draft)
        operations.emit(batch, of_target, of_draft, decision)

    return run


def times(shape: Shape, kind: str, noise: float, device: torch.device) -> dict[str, float]:
    """Microseconds of verification and draw where every request asks for one feature. All in one cache's reach."""
    took = {}
    for name, params in FEATURES.items():
        given = features_step(shape, kind, noise, [params], device)
        took[name] = microseconds(capture([runs_of(given)]), rounds=3)
    return took
