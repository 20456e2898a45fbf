"""Emitted tokens in row order, in plain torch."""

from __future__ import annotations

import torch
from sampler_kernels.batch import Batch
from sampler_kernels.outcome import Decision
from sampler_kernels.result import Status
from torch import Tensor


def flatten(batch: Batch, decision: Decision, tokens: Tensor) -> Tensor:
    """Lays accepted tokens and the final one along the rows that predicted them.

    Args:
        batch: The step.
        decision: Which draft tokens stand.
        tokens: [B] int32, the final token of each request.

    Returns:
        [N] int32: at row j of a request the draft token if j < t, the final token if j = t; -1 past it, and on every
        row of a request that failed.
    """
    request = torch.repeat_interleave(batch.draft_lengths.long() + 1)
    j = torch.arange(len(request)) - batch.cu_num_logits.long()[request]
    # A failed request has no row of a token: its t is put before the first.
    t = torch.where(decision.status == Status.OK, decision.num_accepted, -1)[request]

    emitted = torch.full((len(request),), -1, dtype=torch.int32)
    drafted = j < t
    emitted[drafted] = batch.draft_token_ids[(batch.cu_drafts.long()[request] + j)[drafted]]
    emitted[j == t] = tokens[request[j == t]]
    return emitted
