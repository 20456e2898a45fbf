"""The accept tests, draft position by draft position over the requests that are still alive.

A method is one rule (:data:`RULES`): given a wave of draft tokens, which of them stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from sampler_kernels.batch import Batch, MethodCode
from sampler_kernels.elements import Floats, Ints
from sampler_kernels.outcome import Decision, DrawKind, RowStats
from sampler_kernels.philox.reference import Purpose, uniform
from sampler_kernels.result import Status
from sampler_kernels.stats.reference import LazyRowStats, RowTotals, probability
from sampler_kernels.stats.temperatures import draft_temperature, target_temperature
from sampler_kernels.threads import one_thread

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Columns:
    """The draft side of a step, told target row by target row, so that an accept test is known by its row alone.

    Attributes:
        batch: The step.
        token: [N], the draft token that each row judges; -1 at a bonus row and where no token was drawn.
        draft_row: [N], the draft row beside it, -1 where the draft is a point mass or there is no token.
        place: [N], its draft position; meaningless at a bonus row.
        uniform: [N], the uniform of its accept test; empty if no method of the step asks.
    """

    batch: Batch
    token: Ints
    draft_row: Ints
    place: Ints
    uniform: Floats

    @classmethod
    def of(cls, batch: Batch, *, with_uniform: bool) -> Columns:
        """The columns of a batch."""
        length = batch.draft_lengths.numpy()
        request = np.arange(len(length)).repeat(length + 1)
        row = np.arange(len(request))
        place = row - request  # each request before has one row more than it has drafts
        drafted = np.delete(row, batch.cu_num_logits.numpy()[1:] - 1)
        token, draft_row = np.full(len(row), -1), np.full(len(row), -1)
        token[drafted] = batch.draft_token_ids.numpy()
        # Nothing was drawn at a placeholder, so nothing is compared with the draft row there.
        draft_row[drafted] = np.where(batch.draft_token_ids.numpy() >= 0, batch.draft_row.numpy(), -1)
        u = np.empty(0)
        if with_uniform:
            j = row - batch.cu_num_logits.numpy()[request]
            u = uniform(batch.seed.numpy()[request], batch.position.numpy()[request] + j, Purpose.ACCEPT, j)
        return cls(batch, token, draft_row, place, u)


@dataclass(frozen=True, eq=False)
class Wave:
    """The j-th row of n requests.

    Attributes:
        columns: What each row judges.
        rows: Statistics of the target rows of the step.
        draft_rows: Statistics of its draft rows.
        row: [n], the rows of this wave.
        target: Totals of these rows.
    """

    columns: Columns
    rows: LazyRowStats
    draft_rows: LazyRowStats
    row: Ints
    target: RowTotals

    @cached_property
    def token(self) -> Ints:
        """[n], the draft token, -1 where there is none."""
        return self.columns.token[self.row]

    @cached_property
    def beside(self) -> Ints:
        """Which of the n rows have a draft row beside them."""
        return (self.columns.draft_row[self.row] >= 0).nonzero()[0]

    @cached_property
    def draft(self) -> RowTotals:
        """Totals of these draft rows."""
        return self.draft_rows.totals(self.columns.draft_row[self.row[self.beside]])

    @cached_property
    def p(self) -> Floats:
        """[n], the target's probability of the draft token, 0 where there is none."""
        return probability(self.rows, self.row, self.token, self.target)

    @cached_property
    def q(self) -> Floats:
        """[n], the draft's probability of its token: 1 where the draft is a point mass."""
        q = np.ones(len(self.row))
        if len(self.beside):
            row = self.row[self.beside]
            column = draft_column(self.columns.batch, self.columns.place[row], self.columns.token[row])
            q[self.beside] = probability(self.draft_rows, self.columns.draft_row[row], column, self.draft)
        return q

    @cached_property
    def u(self) -> Floats:
        """[n], the uniform of the accept test."""
        return self.columns.uniform[self.row]

    @cached_property
    def bad(self) -> Bools:
        """[n], whether the target row, or the draft row beside it, cannot be sampled from."""
        bad = self.target.bad.copy()
        if len(self.beside):
            bad[self.beside] |= self.draft.bad
        return bad


def _greedy(wave: Wave) -> Bools:
    """Stands if it is the argmax."""
    return np.equal(wave.token, wave.rows.argmax(wave.row))


def _standard(wave: Wave) -> Bools:
    """Stands with probability min(1, p/q) (Leviathan et al. 2211.17192). Strict: a token with p = 0 never stands."""
    return wave.u * wave.q < wave.p


RULES: Mapping[MethodCode, Callable[[Wave], Bools]] = {
    MethodCode.GREEDY: _greedy,
    MethodCode.STANDARD: _standard,
}
"""[n], which tokens of a wave stand. A rule is asked about whole waves; what it says of other methods' is ignored."""

_ASKS_UNIFORM = {MethodCode.STANDARD}
"""Methods whose accept test is a random one."""

_REDRAWS_RESIDUAL = np.array([code is MethodCode.STANDARD for code in MethodCode])
"""By code, methods that redraw a rejected position from the residual; the others draw from p, or take the argmax."""


@one_thread()
def rejection(batch: Batch, target_stats: RowStats | LazyRowStats, draft_stats: RowStats | LazyRowStats) -> Decision:
    """Decides which draft tokens stand.

    Only needed rows are asked for: row j of a request if its first j draft tokens stood, and the draft row beside it
    where there is a token to compare. So the first bad row met is the smallest needed one that is bad.

    Args:
        batch: The step.
        target_stats: Of ``batch.target``, at each row's temperature.
        draft_stats: Of ``batch.draft``, at each row's draft temperature.

    Returns:
        One line a request. A request with a bad row or a bad draft id accepts nothing and draws nothing.
    """
    rows = LazyRowStats.of(target_stats, batch.target, lambda: target_temperature(batch))
    draft_rows = LazyRowStats.of(draft_stats, batch.draft, lambda: draft_temperature(batch))
    method, first_row = batch.method.numpy(), batch.cu_num_logits.numpy()[:-1].astype(np.int64)
    methods = {MethodCode(code) for code in method.tolist()}
    columns = Columns.of(batch, with_uniform=bool(methods & _ASKS_UNIFORM))
    own_law = np.where(batch.temperature.numpy() == 0, int(DrawKind.ARGMAX), int(DrawKind.TARGET))
    on_rejection = np.where(_REDRAWS_RESIDUAL[method], int(DrawKind.RESIDUAL), own_law)

    num_accepted = np.zeros(len(method), np.int32)
    status = np.full(len(method), int(Status.OK), np.int32)
    bad_row = np.full(len(method), -1, np.int32)
    draw_kind = np.full(len(method), int(DrawKind.NOTHING), np.int32)
    illegal = _with_illegal_id(batch)
    status[illegal] = Status.INVALID_DRAFT_TOKEN

    alive = (~illegal).nonzero()[0]
    j = 0
    while len(alive):
        row = first_row[alive] + j
        wave = Wave(columns, rows, draft_rows, row, rows.totals(row))
        stands = np.zeros(len(alive), np.bool_)
        for code in methods:
            stands |= (method[alive] == code) & RULES[code](wave)
        stands &= (wave.token >= 0) & (wave.token < batch.vocab_size) & ~wave.bad

        ended = alive[~stands]
        num_accepted[ended] = j
        draw_kind[ended] = np.where(wave.token >= 0, on_rejection[alive], own_law[alive])[~stands]
        if wave.bad.any():
            failed = alive[wave.bad]
            num_accepted[failed], draw_kind[failed] = 0, DrawKind.NOTHING
            status[failed], bad_row[failed] = Status.INVALID_LOGITS, j
        alive = alive[stands]
        j += 1

    return Decision(
        num_accepted=torch.from_numpy(num_accepted),
        status=torch.from_numpy(status),
        bad_row=torch.from_numpy(bad_row),
        draw_kind=torch.from_numpy(draw_kind),
        scale=torch.ones(len(method), dtype=torch.float64),
    )


def draft_column(batch: Batch, place: Ints, token: Ints) -> Ints:
    """[n]: which column of its draft row each token is; -1, or past the row's end, where there is none.

    Args:
        batch: The step.
        place: [n] draft positions that have a draft row.
        token: [n] target ids.
    """
    if not batch.inverse_maps:
        return token
    column = token.copy()
    which_map = batch.draft_map.numpy()[place]
    for m, table in enumerate(batch.inverse_maps):
        at, inverse = (which_map == m).nonzero()[0], table.numpy()
        mapped = (token[at] >= 0) & (token[at] < len(inverse))
        column[at] = np.where(mapped, inverse[token[at].clip(0, len(inverse) - 1)], -1)
    return column


def _with_illegal_id(batch: Batch) -> Bools:
    """[B]: requests with a draft id marked as outside its range."""
    illegal = np.zeros(len(batch.draft_lengths), np.bool_)
    outside = (batch.draft_token_ids.numpy() < -1).nonzero()[0]
    # The request of a draft position is the last one that starts at or before it.
    illegal[batch.cu_drafts.numpy().searchsorted(outside, side="right") - 1] = True
    return illegal
