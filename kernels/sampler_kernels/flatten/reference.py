"""Emitted tokens in row order."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.outcome import Decision
from sampler_kernels.result import Status


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
    length, accepted = batch.draft_lengths.numpy(), decision.num_accepted.numpy()
    first_row, first_place = batch.cu_num_logits.numpy(), batch.cu_drafts.numpy()
    request = np.arange(len(length)).repeat(length + 1)
    j = np.arange(len(request)) - first_row[request]
    # A failed request has no row of a token: its t is put before the first.
    t = np.where(decision.status.numpy() == Status.OK, accepted, -1)[request]

    emitted = np.full(len(request), -1, np.int32)
    drafted = (j < t).nonzero()[0]
    emitted[drafted] = batch.draft_token_ids.numpy()[first_place[request[drafted]] + j[drafted]]
    last = (j == t).nonzero()[0]
    emitted[last] = tokens.numpy()[request[last]]
    return torch.from_numpy(emitted)
