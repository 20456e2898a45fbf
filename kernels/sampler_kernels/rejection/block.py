"""Block verification (Sun et al. 2403.10444): a request's draft tokens are judged together, the longest run first."""

from __future__ import annotations

import numpy as np

from sampler_kernels.draw.reference import DraftResidual, PointResidual
from sampler_kernels.elements import Floats, Ints
from sampler_kernels.layout import MAX_DRAFT_TOKENS
from sampler_kernels.outcome import DrawKind
from sampler_kernels.rejection.verdicts import Verdicts
from sampler_kernels.rejection.waves import Columns, Wave
from sampler_kernels.segments import spread
from sampler_kernels.stats.reference import LazyRowStats

_NEVER = MAX_DRAFT_TOKENS + 1
"""A row index that no request has."""


def block(columns: Columns, rows: LazyRowStats, draft_rows: LazyRowStats, request: Ints, verdicts: Verdicts) -> None:
    """Judges requests of method block, all of whose rows up to the first placeholder are needed.

    With k draft tokens x_1..x_k before it, p_i and q_i the distributions of row i - 1, and u_i the uniform there:
    c_0 = 1, c_i = min(1, c_{i-1} p_i(x_i) / q_i(x_i)); S_i is the mass of max(c_i p_{i+1} - q_{i+1}, 0);
    h_i = S_i / (S_i + 1 - c_i) for i < k, and h_k = c_k. The largest i with u_i < h_i tokens stand.

    Args:
        columns: What each row judges.
        rows: The target rows.
        draft_rows: The draft rows.
        request: [n], the requests.
        verdicts: Written to.
    """
    first = columns.batch.cu_num_logits.numpy()[request].astype(np.int64)
    k = _drawn(columns, request, first)
    owner, row = spread(first, k + 1)
    wave = Wave.of(columns, rows, draft_rows, row)
    bad_row = np.minimum.reduceat(np.where(wave.bad, columns.j[row], _NEVER), np.cumsum(k + 1) - k - 1)
    good = bad_row == _NEVER
    verdicts.bad_rows(request[~good], bad_row[~good])

    c = _factors(wave, owner, k)
    t = _accepted(columns, rows, draft_rows, first, k, c, good)
    kind = np.where(t == k, int(DrawKind.TARGET), int(DrawKind.RESIDUAL))
    verdicts.accept(request[good], t[good], kind[good])
    verdicts.scale[request[good]] = c[good, t[good]]


def _drawn(columns: Columns, request: Ints, first: Ints) -> Ints:
    """[n], k: draft tokens before the first placeholder."""
    rows = columns.batch.draft_lengths.numpy()[request].astype(np.int64) + 1
    _, row = spread(first, rows)
    # The bonus row has no token either, so there always is such a row.
    without = np.where(columns.token[row] < 0, columns.j[row], _NEVER)
    drawn: Ints = np.minimum.reduceat(without, np.cumsum(rows) - rows)
    return drawn


def _factors(wave: Wave, owner: Ints, k: Ints) -> Floats:
    """[n, longest k + 1]: c_i; 0 past k."""
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.where(wave.p == 0, 0.0, wave.p / wave.q)  # p over 0 is infinite
    ratio = np.zeros((len(k), int(k.max()) + 1))
    ratio[owner, wave.columns.j[wave.row]] = quotient
    c = np.ones(ratio.shape)
    for i in range(1, c.shape[1]):
        alive = c[:, i - 1] > 0  # once 0 it stays 0, whatever the ratio
        c[:, i] = np.where(alive, np.minimum(1.0, np.where(alive, c[:, i - 1], 1.0) * ratio[:, i - 1]), 0.0)
    return c


def _accepted(
    columns: Columns, rows: LazyRowStats, draft_rows: LazyRowStats, first: Ints, k: Ints, c: Floats, good: np.ndarray
) -> Ints:
    """[n], t: the largest i with u_i < h_i, 0 without one, and for requests that are not good.

    No mass is summed unless it decides: S_i is at most c_i, so h_i is at most c_i too, and 1 where c_i is.
    """
    t, open_ = np.zeros(len(k), np.int64), good.copy()
    for i in range(int(k.max()), 0, -1):
        at = (open_ & (k >= i)).nonzero()[0]
        at = at[columns.accept_uniform[first[at] + i - 1] < c[at, i]]
        summed = (i < k[at]) & (c[at, i] < 1)
        stands = ~summed
        some = at[summed]
        if len(some):
            mass = _residual_mass(columns, rows, draft_rows, first[some] + i, c[some, i])
            stands[summed] = columns.accept_uniform[first[some] + i - 1] < mass / (mass + 1 - c[some, i])
        t[at[stands]], open_[at[stands]] = i, False
    return t


def _residual_mass(columns: Columns, rows: LazyRowStats, draft_rows: LazyRowStats, row: Ints, c: Floats) -> Floats:
    """[n]: the mass of max(c p - q, 0) at rows with a draft token, summed anew from both distributions."""
    batch = columns.batch
    out = np.empty(len(row))
    beside = columns.draft_row[row] >= 0
    if beside.any():
        here = row[beside]
        law = DraftResidual(batch, rows, draft_rows, here, columns.place[here], c[beside])
        out[beside] = law.tile_masses().cumsum(1)[:, -1]
    if not beside.all():
        here = row[~beside]
        left = PointResidual(rows, here, columns.token[here], batch.vocab_size).tile_masses().cumsum(1)[:, -1]
        out[~beside] = c[~beside] * left / rows.totals(here).total
    return out
