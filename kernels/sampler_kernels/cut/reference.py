"""Emitted tokens up to the first stop id, and no more than a request may emit."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.outcome import Cut, Decision
from sampler_kernels.result import FinishReason, Status

_NEVER = np.iinfo(np.int32).max


def cut(batch: Batch, decision: Decision, emitted: Tensor) -> Cut:
    """Cuts emitted tokens after the first stop id, and at the most that a request may emit, whichever comes first.

    A limit that is reached exactly is a reason to finish too, but a stop id at the same token wins.

    Args:
        batch: The step, with ``cuts``.
        decision: Which draft tokens stand.
        emitted: [N] int32, emitted tokens in row order, -1 elsewhere.
    """
    cuts = batch.cuts
    assert cuts is not None, "a batch without stop ids and limits is not cut"
    first_row, length = batch.cu_num_logits.numpy(), batch.draft_lengths.numpy()
    request = np.arange(len(length)).repeat(length + 1)
    j = np.arange(len(request)) - first_row[request]
    tokens = emitted.numpy()

    stop_set, cu = cuts.stop_set.numpy().astype(np.int64), cuts.cu_stops.numpy()
    # A set's stop ids ascend, and so do the sets: one ascending list of (set, id) is searched for each (set, token).
    listed = np.arange(len(cu) - 1).repeat(np.diff(cu)) * batch.vocab_size + cuts.stop_ids.numpy()
    wanted = stop_set[request] * batch.vocab_size + tokens
    place = listed.searchsorted(wanted)
    is_stop = np.append(listed, -1)[place] == wanted
    is_stop &= tokens >= 0
    until_stop = np.minimum.reduceat(np.where(is_stop, j + 1, _NEVER), first_row[:-1])

    uncut = np.where(decision.status.numpy() == Status.OK, decision.num_accepted.numpy() + 1, 0)
    limit = cuts.max_tokens.numpy()
    kept = np.minimum(np.minimum(uncut, until_stop), limit).astype(np.int32)
    reason = np.where(kept == limit, int(FinishReason.LENGTH), int(FinishReason.NONE))
    reason = np.where(kept == until_stop, int(FinishReason.STOP), reason).astype(np.int32)
    return Cut(
        emitted=torch.from_numpy(np.where(j < kept[request], tokens, -1).astype(np.int32)),
        kept=torch.from_numpy(kept),
        finish_reason=torch.from_numpy(reason),
    )
