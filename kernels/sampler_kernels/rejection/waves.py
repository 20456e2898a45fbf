"""What accept tests look at: waves of target rows, and the draft token that each row judges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sampler_kernels.batch import Batch
from sampler_kernels.elements import Floats, Ints
from sampler_kernels.philox.reference import Purpose, uniform
from sampler_kernels.stats.reference import LazyRowStats, RowTotals, probability

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Columns:
    """The draft side of a step, told target row by target row, so that an accept test is known by its row alone.

    Attributes:
        batch: The step.
        request: [N], whose row it is.
        j: [N], its index in the step.
        token: [N], the draft token that each row judges; -1 at a bonus row and where no token was drawn.
        draft_row: [N], the draft row beside it, -1 where the draft is a point mass or there is no token.
        place: [N], its draft position; meaningless at a bonus row.
    """

    batch: Batch
    request: Ints
    j: Ints
    token: Ints
    draft_row: Ints
    place: Ints

    @classmethod
    def of(cls, batch: Batch) -> Columns:
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
        return cls(batch, request, row - batch.cu_num_logits.numpy()[request], token, draft_row, place)

    @cached_property
    def accept_uniform(self) -> Floats:
        """[N], the uniform of each row's accept test."""
        return self._uniform(Purpose.ACCEPT, self.j)

    @cached_property
    def draw_uniform(self) -> Floats:
        """[N], the uniform of a draw at each row."""
        return self._uniform(Purpose.DRAW, 0)

    def _uniform(self, purpose: Purpose, s: Ints | int) -> Floats:
        seed, position = self.batch.seed.numpy(), self.batch.position.numpy()
        return uniform(seed[self.request], position[self.request] + self.j, purpose, s)


@dataclass(frozen=True, eq=False)
class Wave:
    """n target rows that are looked at together.

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

    @classmethod
    def of(cls, columns: Columns, rows: LazyRowStats, draft_rows: LazyRowStats, row: Ints) -> Wave:
        """The wave of these rows, which are computed now."""
        return cls(columns, rows, draft_rows, row, rows.totals(row))

    def only(self, at: Bools) -> Wave:
        """Some of the rows, [n] bool."""
        if at.all():
            return self
        return Wave(self.columns, self.rows, self.draft_rows, self.row[at], self.target.at(at.nonzero()[0]))

    @cached_property
    def request(self) -> Ints:
        """[n], whose rows they are."""
        return self.columns.request[self.row]

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
    def draft_column(self) -> Ints:
        """Where the token of each row with a draft row beside it stands in that row."""
        row = self.row[self.beside]
        return column_of(self.columns.batch, self.columns.place[row], self.columns.token[row])

    @cached_property
    def q(self) -> Floats:
        """[n], the draft's probability of its token: 1 where the draft is a point mass."""
        q = np.ones(len(self.row))
        if len(self.beside):
            draft_row = self.columns.draft_row[self.row[self.beside]]
            q[self.beside] = probability(self.draft_rows, draft_row, self.draft_column, self.draft)
        return q

    @cached_property
    def u(self) -> Floats:
        """[n], the uniform of the accept test."""
        return self.columns.accept_uniform[self.row]

    @cached_property
    def bad(self) -> Bools:
        """[n], whether the target row, or the draft row beside it, cannot be sampled from."""
        bad = self.target.bad.copy()
        if len(self.beside):
            bad[self.beside] |= self.draft.bad
        if self.rows.supplied:
            bad |= self.rows.unreadable(self.row, self.token)
        if self.draft_rows.supplied:
            draft_row = self.columns.draft_row[self.row[self.beside]]
            bad[self.beside] |= self.draft_rows.unreadable(draft_row, self.draft_column)
        return bad

    def contradicted(self, drawn: Bools) -> Bools:
        """[n], which of the rows that are drawn from, [n] bool, or draft rows beside them, are not as supplied."""
        at, out = drawn.nonzero()[0], np.zeros(len(drawn), np.bool_)
        out[at] = self.rows.contradicts(self.row[at])
        beside = self.beside[drawn[self.beside]]
        out[beside] |= self.draft_rows.contradicts(self.columns.draft_row[self.row[beside]])
        return out


def column_of(batch: Batch, place: Ints, token: Ints) -> Ints:
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
