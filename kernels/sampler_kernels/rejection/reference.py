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

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Wave:
    """The draft tokens at one position of n requests, all drawn, none a placeholder.

    Attributes:
        batch: The step.
        rows: Statistics of the target rows of the step.
        draft_rows: Statistics of its draft rows.
        row: [n], the target row that judges each token.
        target: Totals of those rows.
        place: [n], the draft position of each token.
        token: [n], the draft tokens.
        draft_row: [n], the draft row of each, -1 where the draft is a point mass.
        accept_uniform: [D], the uniform of every accept test of the step; empty if no rule asks.
    """

    batch: Batch
    rows: LazyRowStats
    draft_rows: LazyRowStats
    row: Ints
    target: RowTotals
    place: Ints
    token: Ints
    draft_row: Ints
    accept_uniform: Floats

    @cached_property
    def beside_row(self) -> Bools:
        """[n], whether a draft row stands beside the token."""
        return self.draft_row >= 0

    @cached_property
    def draft(self) -> RowTotals:
        """Totals of the draft rows, of those tokens that have one."""
        return self.draft_rows.totals(self.draft_row[self.beside_row])

    @cached_property
    def p(self) -> Floats:
        """[n], the target's probability of each token."""
        return probability(self.rows, self.row, self.token, self.target)

    @cached_property
    def q(self) -> Floats:
        """[n], the draft's probability of each token: 1 where the draft is a point mass."""
        q = np.ones(len(self.token))
        here = self.beside_row
        if here.any():
            column = draft_column(self.batch, self.place[here], self.token[here])
            q[here] = probability(self.draft_rows, self.draft_row[here], column, self.draft)
        return q

    @cached_property
    def u(self) -> Floats:
        """[n], the uniform of each decision."""
        return self.accept_uniform[self.place]

    @cached_property
    def bad(self) -> Bools:
        """[n], whether the target row, or the draft row beside it, cannot be sampled from."""
        bad = self.target.bad.copy()
        if self.beside_row.any():
            bad[self.beside_row] |= self.draft.bad
        return bad


def _greedy(wave: Wave) -> Bools:
    """Stands if it is the argmax."""
    return wave.token == wave.rows.argmax(wave.row)


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
    method, length = batch.method.numpy(), batch.draft_lengths.numpy()
    first_row, first_place = batch.cu_num_logits.numpy().astype(np.int64), batch.cu_drafts.numpy().astype(np.int64)
    token, draft_row = batch.draft_token_ids.numpy().astype(np.int64), batch.draft_row.numpy().astype(np.int64)
    methods = {MethodCode(code) for code in method.tolist()}
    accept_uniform = _accept_uniforms(batch) if methods & _ASKS_UNIFORM else np.empty(0)
    own_law = np.where(batch.temperature.numpy() == 0, DrawKind.ARGMAX, DrawKind.TARGET)
    on_rejection = np.where(_REDRAWS_RESIDUAL[method], DrawKind.RESIDUAL, own_law)

    illegal = _with_illegal_id(token, length)
    num_accepted = np.zeros(len(length), np.int32)
    status = np.where(illegal, Status.INVALID_DRAFT_TOKEN, Status.OK).astype(np.int32)
    bad_row = np.full(len(length), -1, np.int32)
    draw_kind = np.full(len(length), DrawKind.NOTHING, np.int32)

    alive = (~illegal).nonzero()[0]
    j = 0
    while len(alive):
        row = first_row[alive] + j
        target = rows.totals(row)
        bad, stands = target.bad.copy(), np.zeros(len(alive), np.bool_)
        draw_kind[alive] = own_law[alive]

        drafted = (j < length[alive]).nonzero()[0]
        drafted = drafted[token[first_place[alive[drafted]] + j] >= 0]
        if len(drafted):
            place = first_place[alive[drafted]] + j
            wave = Wave(
                batch, rows, draft_rows, row[drafted], target.at(drafted), place, token[place], draft_row[place], accept_uniform
            )
            for code in methods:
                stands[drafted] |= (method[alive[drafted]] == code) & RULES[code](wave)
            bad[drafted] |= wave.bad
            stands[drafted] &= wave.token < batch.vocab_size
            draw_kind[alive[drafted]] = on_rejection[alive[drafted]]

        failed = alive[bad]
        if len(failed):
            status[failed], bad_row[failed] = Status.INVALID_LOGITS, j
            num_accepted[failed], draw_kind[failed] = 0, DrawKind.NOTHING
        alive = alive[stands & ~bad]
        j += 1
        num_accepted[alive] = j

    return Decision(
        num_accepted=torch.from_numpy(num_accepted),
        status=torch.from_numpy(status),
        bad_row=torch.from_numpy(bad_row),
        draw_kind=torch.from_numpy(draw_kind),
        scale=torch.ones(len(length), dtype=torch.float64),
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


def _accept_uniforms(batch: Batch) -> Floats:
    """[D]: the uniform of the accept test at each draft position."""
    length, first = batch.draft_lengths.numpy(), batch.cu_drafts.numpy()
    request = np.arange(len(length)).repeat(length)
    j = np.arange(len(request)) - first[request]
    position = batch.position.numpy()[request] + j
    return uniform(*map(torch.from_numpy, (batch.seed.numpy()[request], position)), Purpose.ACCEPT, torch.from_numpy(j)).numpy()


def _with_illegal_id(token: Ints, length: NDArray[np.int32]) -> Bools:
    """[B]: requests with a draft id marked as outside its range."""
    illegal = np.zeros(len(length), np.bool_)
    outside = token < -1
    if outside.any():
        illegal[np.repeat(np.arange(len(length)), length)[outside]] = True
    return illegal
