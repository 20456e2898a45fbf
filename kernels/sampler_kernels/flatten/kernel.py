"""Emitted tokens in row order."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.device.compile import kernel
from sampler_kernels.layout import MAX_DRAFT_TOKENS
from sampler_kernels.outcome import Decision
from sampler_kernels.result import Status

_ROWS = tl.constexpr(2 * MAX_DRAFT_TOKENS)
"""The power of two that holds the 129 rows of the longest request."""
_OK = tl.constexpr(int(Status.OK))


@triton.jit
def store_emitted(emitted_ptr, first_row, drafts, draft_token_ids_ptr, first_draft, accepted, token, ok):
    """The rows of one request: its accepted draft tokens, its final token, then -1; all -1 where not ``ok``.

    emitted_ptr: [N] int32. draft_token_ids_ptr: [D] int32. The others: int32 of the request.
    """
    j = tl.arange(0, _ROWS)
    last = tl.where(ok, accepted, -1)
    drafted = tl.load(draft_token_ids_ptr + first_draft + j, mask=j < last, other=-1)
    emitted = tl.where(j == last, token, drafted)
    tl.store(emitted_ptr + first_row + j, emitted, mask=j <= drafts)


@kernel
def _flatten_kernel(
    draft_lengths_ptr,
    cu_num_logits_ptr,
    cu_drafts_ptr,
    draft_token_ids_ptr,
    num_accepted_ptr,
    status_ptr,
    tokens_ptr,
    emitted_ptr,
):
    """The rows of one request.

    In: columns of ``Batch`` and ``Decision`` by their names; tokens_ptr [B] int32. Out: emitted_ptr [N] int32.
    The grid walks requests; a program covers the rows that the longest may have.
    """
    request = tl.program_id(0)
    store_emitted(
        emitted_ptr,
        tl.load(cu_num_logits_ptr + request),
        tl.load(draft_lengths_ptr + request),
        draft_token_ids_ptr,
        tl.load(cu_drafts_ptr + request),
        tl.load(num_accepted_ptr + request),
        tl.load(tokens_ptr + request),
        tl.load(status_ptr + request) == _OK,
    )


def flatten(batch: Batch, decision: Decision, tokens: Tensor) -> Tensor:
    """Lays tokens along the rows that predicted them. See :func:`sampler_kernels.flatten.reference.flatten`."""
    emitted = torch.empty(len(batch.target), dtype=torch.int32, device=tokens.device)
    _flatten_kernel[(len(tokens),)](
        batch.draft_lengths,
        batch.cu_num_logits,
        batch.cu_drafts,
        batch.draft_token_ids,
        decision.num_accepted,
        decision.status,
        tokens,
        emitted,
        num_warps=1,
    )
    return emitted
