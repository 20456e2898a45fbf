"""Outcome -> StepResult: what the device decided becomes flat columns on the host, in request order."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.columns import download
from sampler_kernels.host import prefix_sum
from sampler_kernels.outcome import Cut, Decision, TopLogits
from sampler_kernels.params import LogprobsMode
from sampler_kernels.planning.plan import Plan
from sampler_kernels.planning.wishes import Wishes
from sampler_kernels.result import FinishReason, ModeLogprobs, Status, StepResult


def collect(
    plan: Plan,
    decision: Decision,
    emitted: Tensor,
    raw: TopLogits | None,
    processed: TopLogits | None,
    cut: Cut | None = None,
) -> StepResult:
    """Bring the outcome of a batch to the host, in one copy, and keep of it what its requests emit and asked for.

    Args:
        plan: The batch as it was planned.
        decision: Of the B requests.
        emitted: [N] int32, emitted tokens in row order, -1 elsewhere.
        raw: Numbers of the N rows as the client gave them; None where no request wants any.
        processed: Likewise of the processed rows.
        cut: What stop ids and limits left of the emitted tokens; None where there are none.

    Returns:
        The result, but for the backend's name and the timings.
    """
    outcome = download(_tensors(decision, emitted, raw, processed, cut))
    status = outcome["status"].astype(np.uint8)
    uncut = np.where(status == Status.OK, outcome["num_accepted"] + 1, 0)
    kept = outcome.get("kept", uncut).astype(np.int64)
    finish_reason = outcome.get("finish_reason", np.full(len(kept), FinishReason.NONE)).astype(np.uint8)
    rows = emitted_rows(plan.cu_num_logits, kept)
    request = np.repeat(np.arange(len(kept)), kept)
    logprobs = {}
    for mode in plan.wishes.modes:
        if (raw if mode.raw else processed) is None:
            continue
        view = {name: outcome[f"{_prefix(raw=mode.raw)}{name}"][rows] for name in _VIEW_FIELDS}
        divisor = np.ones(len(rows)) if mode.raw else plan.temperature[request]
        logprobs[mode] = mode_logprobs(mode, view, divisor, request, plan.wishes)
    acceptance, cu_acceptance = None, None
    if "acceptance" in outcome:
        acceptance, cu_acceptance = reported_acceptance(outcome["acceptance"], plan.cu_num_logits, kept)
    return StepResult(
        token_ids=outcome["emitted"][rows],
        cu_tokens=prefix_sum(kept).astype(np.int32),
        # A cut through the accepted tokens keeps fewer of them; one after them takes the final token only.
        num_accepted=np.minimum(outcome["num_accepted"], kept).astype(np.int32),
        status=status,
        seeds=plan.seeds,
        finish_reason=finish_reason,
        lossy=plan.wishes.lossy,
        bad_row=np.where(status == Status.INVALID_LOGITS, outcome["bad_row"], -1).astype(np.int32),
        logprobs=logprobs,
        acceptance_probabilities=acceptance,
        cu_acceptance=cu_acceptance,
    )


def emitted_rows(cu_num_logits: NDArray[np.int64], kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """[M] int64: the target rows of the emitted tokens, the first ``kept`` rows of each request.

    Args:
        cu_num_logits: [B+1] first target row of each request.
        kept: [B] tokens that the request emits.
    """
    first = np.cumsum(kept) - kept
    rows: NDArray[np.int64] = np.arange(kept.sum()) + np.repeat(cu_num_logits[:-1] - first, kept)
    return rows


def reported_acceptance(
    acceptance: NDArray[np.float64], cu_num_logits: NDArray[np.int64], kept: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """Acceptance probabilities as far as tokens are emitted where they belong, and [B+1] their prefix sum.

    Args:
        acceptance: [D], NaN where there is nothing to report.
        cu_num_logits: [B+1] first target row of each request.
        kept: [B] tokens that the request emits.
    """
    length = np.diff(cu_num_logits) - 1
    request = np.repeat(np.arange(len(kept)), length)
    j = np.arange(len(request)) - np.repeat(np.cumsum(length) - length, length)
    reported = ~np.isnan(acceptance) & (j < kept[request])
    return acceptance[reported], prefix_sum(np.bincount(request[reported], minlength=len(kept))).astype(np.int32)


def mode_logprobs(
    mode: LogprobsMode,
    view: dict[str, NDArray[Any]],
    temperature: NDArray[np.float64],
    request: NDArray[np.int64],
    wishes: Wishes,
) -> ModeLogprobs:
    """One mode's numbers of the M emitted tokens.

    Args:
        mode: The mode.
        view: The fields of :class:`~sampler_kernels.outcome.TopLogits`, of the rows of the M tokens.
        temperature: [M], what logits are divided by.
        request: [M] request of each token.
        wishes: What each request asked for; of a batch's top n, a request with a smaller n gets the head.
    """
    wanted = wishes.modes[mode]
    less = view["log_sum_exp"] if mode.normalised else np.zeros(len(request))

    def values_of(logits: NDArray[np.float32]) -> NDArray[np.float32]:
        of_token = (slice(None), *[None] * (logits.ndim - 1))
        with np.errstate(over="ignore", invalid="ignore"):  # garbage of those who want nothing, and huge logits
            return (logits / temperature[of_token] - less[of_token]).astype(np.float32)

    values = np.where(wanted[request], values_of(view["logits"]), np.float32(np.nan))
    # Added up request by request: a difference of running sums would depend on the neighbours in the batch.
    cumulative = np.bincount(request, values, len(wanted))
    top_ids, top_logits = view["top_ids"], view["top_logits"]
    within = np.arange(top_ids.shape[1]) < np.where(wanted, wishes.top, 0)[request][:, None]
    top = within & (top_ids >= 0) & (top_logits > -np.inf)
    chosen_ids = wishes.chosen_ids[request]
    chosen = (chosen_ids >= 0) & wanted[request][:, None]
    ranked = wanted & wishes.ranks
    return ModeLogprobs(
        values=values,
        ranks=np.where(ranked[request], view["ranks"], 0).astype(np.int32),
        cumulative=np.where(wanted & mode.normalised, cumulative, np.nan),
        cu_top=prefix_sum(top.sum(1)).astype(np.int32),
        top_ids=top_ids[top],
        top_values=values_of(top_logits)[top],
        cu_chosen=prefix_sum(chosen.sum(1)).astype(np.int32),
        chosen_ids=chosen_ids[chosen],
        chosen_values=values_of(view["chosen_logits"])[chosen],
    )


_VIEW_FIELDS = tuple(field.name for field in fields(TopLogits))


def _tensors(
    decision: Decision, emitted: Tensor, raw: TopLogits | None, processed: TopLogits | None, cut: Cut | None
) -> dict[str, Tensor]:
    tensors = {
        "num_accepted": decision.num_accepted,
        "status": decision.status,
        "bad_row": decision.bad_row,
        "emitted": emitted,
    }
    if decision.acceptance is not None:
        tensors["acceptance"] = decision.acceptance
    if cut is not None:
        tensors |= {"kept": cut.kept, "finish_reason": cut.finish_reason}
    for is_raw, view in ((True, raw), (False, processed)):
        if view is not None:
            tensors |= {f"{_prefix(raw=is_raw)}{name}": getattr(view, name) for name in _VIEW_FIELDS}
    return tensors


def _prefix(*, raw: bool) -> str:
    return "raw_" if raw else "processed_"
