"""Emitted tokens up to the first stop id, and no more than a request may emit."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.device.compile import kernel
from sampler_kernels.layout import MAX_DRAFT_TOKENS
from sampler_kernels.outcome import Cut, Decision
from sampler_kernels.result import FinishReason, Status

_ROWS = tl.constexpr(2 * MAX_DRAFT_TOKENS)
"""The power of two that holds the 129 rows of the longest request."""
_OK = tl.constexpr(int(Status.OK))
_NONE = tl.constexpr(int(FinishReason.NONE))
_STOP = tl.constexpr(int(FinishReason.STOP))
_LENGTH = tl.constexpr(int(FinishReason.LENGTH))
_NEVER = tl.constexpr(2**31 - 1)


@triton.jit
def _first_stop(tokens, j, start, end, stop_ids_ptr):
    """How many tokens there are up to the first that is a stop id, it included; the largest int32 without one.

    tokens: [_ROWS] int32, -1 for none. start, end: where the request's stop ids lie in stop_ids_ptr [S] int32.
    """
    until = start * 0 + _NEVER
    for place in range(start, end):
        is_stop = tokens == tl.load(stop_ids_ptr + place)
        until = tl.minimum(until, tl.min(tl.where(is_stop, j + 1, _NEVER), axis=0))
    return until


@kernel
def _cut_kernel(
    draft_lengths_ptr,
    cu_num_logits_ptr,
    num_accepted_ptr,
    status_ptr,
    stop_ids_ptr,
    cu_stops_ptr,
    stop_set_ptr,
    max_tokens_ptr,
    emitted_ptr,
    cut_emitted_ptr,
    kept_ptr,
    finish_reason_ptr,
):
    """The rows of one request.

    In: columns of ``Batch``, ``CutColumns`` and ``Decision`` by their names; emitted_ptr [N] int32.
    Out: cut_emitted_ptr [N], kept_ptr and finish_reason_ptr [B] int32, as in ``Cut``.
    The grid walks requests; a program covers the rows that the longest may have. Stop ids are compared one by one:
    there are a handful.
    """
    request = tl.program_id(0)
    j = tl.arange(0, _ROWS)
    row = tl.load(cu_num_logits_ptr + request) + j
    inside = j <= tl.load(draft_lengths_ptr + request)
    tokens = tl.load(emitted_ptr + row, mask=inside, other=-1)
    stop_set = tl.load(stop_set_ptr + request)
    start, end = tl.load(cu_stops_ptr + stop_set), tl.load(cu_stops_ptr + stop_set + 1)
    until_stop = _first_stop(tokens, j, start, end, stop_ids_ptr)
    limit = tl.load(max_tokens_ptr + request)
    ok = tl.load(status_ptr + request) == _OK
    uncut = tl.where(ok, tl.load(num_accepted_ptr + request) + 1, 0)
    kept = tl.minimum(tl.minimum(uncut, until_stop), limit)
    # A stop id at the last token that a limit allows is the reason that wins.
    reason = tl.where(kept == until_stop, _STOP, tl.where(kept == limit, _LENGTH, _NONE))
    tl.store(cut_emitted_ptr + row, tl.where(j < kept, tokens, -1), mask=inside)
    tl.store(kept_ptr + request, kept)
    tl.store(finish_reason_ptr + request, reason)


def cut(batch: Batch, decision: Decision, emitted: Tensor) -> Cut:
    """Cuts emitted tokens. See :func:`sampler_kernels.cut.reference.cut`."""
    cuts, requests = batch.cuts, len(batch.draft_lengths)
    assert cuts is not None, "a batch without stop ids and limits is not cut"
    kept, finish_reason = torch.empty((2, requests), dtype=torch.int32, device=emitted.device)
    out = torch.empty_like(emitted)
    _cut_kernel[(requests,)](
        batch.draft_lengths,
        batch.cu_num_logits,
        decision.num_accepted,
        decision.status,
        cuts.stop_ids,
        cuts.cu_stops,
        cuts.stop_set,
        cuts.max_tokens,
        emitted,
        out,
        kept,
        finish_reason,
        num_warps=1,
    )
    return Cut(emitted=out, kept=kept, finish_reason=finish_reason)
