"""Acceptance probabilities, for those who want to see them: they are reported, and decide nothing."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from sampler_kernels.batch import MethodCode
from sampler_kernels.rejection.verdicts import Verdicts
from sampler_kernels.rejection.waves import Columns, Wave
from sampler_kernels.result import Status
from sampler_kernels.segments import spread
from sampler_kernels.stats.reference import LazyRowStats


def acceptance(columns: Columns, rows: LazyRowStats, draft_rows: LazyRowStats, verdicts: Verdicts) -> Tensor | None:
    """What standard would ask of each draft token up to the first that did not stand: min(1, p/q).

    0 where p is, and else 1 where q is 0. Where the method reads no draft row q is the point mass, and in greedy p is
    one too.

    Args:
        columns: What each row judges.
        rows: The target rows.
        draft_rows: The draft rows.
        verdicts: What was decided.

    Returns:
        [D] float64 as in :class:`~sampler_kernels.outcome.Decision`; None where no request wants it.
    """
    batch = columns.batch
    if batch.wants_acceptance is None:
        return None
    out = np.full(len(batch.draft_token_ids), math.nan)
    request = (batch.wants_acceptance.numpy() & (verdicts.status == Status.OK)).nonzero()[0]
    first = batch.cu_num_logits.numpy()[request].astype(np.int64)
    _, row = spread(first, verdicts.num_accepted[request].astype(np.int64) + 1)
    row = row[columns.token[row] >= 0]
    if len(row):
        wave = Wave.of(columns, rows, draft_rows, row)
        p = wave.p.copy()
        greedy = batch.method.numpy()[wave.request] == MethodCode.GREEDY
        if greedy.any():
            p[greedy] = rows.argmax(row[greedy]) == wave.token[greedy]
        probability = np.where(p > 0, 1.0, 0.0)
        below = p < wave.q
        probability[below] = p[below] / wave.q[below]
        out[columns.place[row]] = probability
    return torch.from_numpy(out)
