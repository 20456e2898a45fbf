"""The accept tests in plain torch, draft position by draft position over the requests that are still alive.

A method is one rule (:data:`RULES`): given a wave of draft tokens, which of them stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from sampler_kernels.batch import Batch, MethodCode
from sampler_kernels.outcome import Decision, DrawKind, RowStats
from sampler_kernels.philox.reference import Purpose, uniform
from sampler_kernels.result import Status
from sampler_kernels.stats.reference import LazyRowStats, RowTotals, combine, probability, row_argmax, take
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Wave:
    """The j-th row of n requests, and the draft token that it judges.

    Attributes:
        batch: The whole step.
        request: [n] int64, requests.
        row: [n] int64, their target rows.
        place: [n] int64, their draft positions; meaningless where ``token`` is -1.
        token: [n] int64, the draft tokens; -1 at a bonus row and where no token was drawn.
        stats: Of the target rows.
        target: Totals of the target rows.
        reads_draft: [n] bool, whether a draft row stands beside the token.
        draft: Totals of the draft rows where ``reads_draft``, in order.
        accept_uniform: [D] float64, the uniform of every draft position of the step; empty if no rule asks.
    """

    batch: Batch
    request: Tensor
    row: Tensor
    place: Tensor
    token: Tensor
    stats: RowStats
    target: RowTotals
    reads_draft: Tensor
    draft: RowTotals
    accept_uniform: Tensor

    @cached_property
    def p(self) -> Tensor:
        """[n] float64, the target's probability of the draft token."""
        temperature = self.batch.temperature[self.request]
        return probability(self.batch.target, self.row, self.token, self.target, temperature)

    @cached_property
    def q(self) -> Tensor:
        """[n] float64, the draft's probability of it: 1 where the draft is a point mass on its token."""
        q = torch.ones(len(self.request), dtype=torch.float64)
        read = self.reads_draft
        place = self.place[read]
        q[read] = probability(
            self.batch.draft,
            self.batch.draft_row[place].long(),
            draft_column(self.batch, place, self.token[read]),
            self.draft,
            self.batch.draft_temperature[self.request[read]],
        )
        return q

    @cached_property
    def u(self) -> Tensor:
        """[n] float64, the uniform of the decision."""
        return self.accept_uniform[self.place]

    @cached_property
    def bad(self) -> Tensor:
        """[n] bool, whether the target row or a draft row that is read cannot be sampled from."""
        bad = self.target.bad.clone()
        bad[self.reads_draft] |= self.draft.bad
        return bad


def _greedy(wave: Wave) -> Tensor:
    """Stands if it is the argmax."""
    return wave.token == row_argmax(wave.stats)


def _standard(wave: Wave) -> Tensor:
    """Stands with probability min(1, p/q) (Leviathan et al. 2211.17192). Strict: a token with p = 0 never stands."""
    return wave.u * wave.q < wave.p


RULES: Mapping[MethodCode, Callable[[Wave], Tensor]] = {
    MethodCode.GREEDY: _greedy,
    MethodCode.STANDARD: _standard,
}
"""[n] bool, which tokens of a wave stand. Asked about whole waves, answers for requests of other methods are ignored."""

_REDRAWS_RESIDUAL = (MethodCode.STANDARD,)
"""Methods that redraw a rejected position from the residual; the others draw from p, or take the argmax."""

_ASKS_UNIFORM = (MethodCode.STANDARD,)
"""Methods whose accept test is a random one."""


def rejection(batch: Batch, target_stats: RowStats | LazyRowStats, draft_stats: RowStats | LazyRowStats) -> Decision:
    """Decides which draft tokens stand.

    Only needed rows are asked for: row j of a request if its first j draft tokens stood, and the draft row beside it
    where there is one to compare with. So the first bad row met is the smallest needed one that is bad.

    Args:
        batch: The step.
        target_stats: Of ``batch.target``, at each row's temperature.
        draft_stats: Of ``batch.draft``, at each row's draft temperature.

    Returns:
        One line a request. A request with a bad row or a bad draft id accepts nothing and draws nothing.
    """
    requests = len(batch.draft_lengths)
    decision = Decision(
        num_accepted=torch.zeros(requests, dtype=torch.int32),
        status=torch.full((requests,), Status.OK, dtype=torch.int32),
        bad_row=torch.full((requests,), -1, dtype=torch.int32),
        draw_kind=torch.full((requests,), DrawKind.NOTHING, dtype=torch.int32),
        scale=torch.ones(requests, dtype=torch.float64),
    )
    illegal = _with_illegal_id(batch)
    decision.status[illegal] = Status.INVALID_DRAFT_TOKEN
    methods = [MethodCode(code) for code in batch.method.unique().tolist()]
    accept_uniform = _accept_uniforms(batch) if set(methods) & set(_ASKS_UNIFORM) else torch.empty(0)
    residual = _is_any(batch.method, _REDRAWS_RESIDUAL)

    alive = (~illegal).nonzero().squeeze(1)
    j = 0
    while len(alive):
        wave = _wave(batch, target_stats, draft_stats, alive, j, accept_uniform)
        decision.status[alive[wave.bad]] = Status.INVALID_LOGITS
        decision.bad_row[alive[wave.bad]] = j
        decision.num_accepted[alive[wave.bad]] = 0

        stands = torch.zeros(len(alive), dtype=torch.bool)
        for method in methods if bool((wave.token >= 0).any()) else ():
            stands |= (batch.method[alive] == method) & RULES[method](wave)
        stands &= (wave.token >= 0) & (wave.token < batch.vocab_size) & ~wave.bad

        ends = ~stands & ~wave.bad
        own_law = torch.where(batch.temperature[alive] == 0, int(DrawKind.ARGMAX), int(DrawKind.TARGET))
        kind = torch.where((wave.token >= 0) & residual[alive], int(DrawKind.RESIDUAL), own_law)
        decision.draw_kind[alive[ends]] = kind[ends].int()
        alive = alive[stands]
        j += 1
        decision.num_accepted[alive] = j
    return decision


def draft_column(batch: Batch, place: Tensor, token: Tensor) -> Tensor:
    """[n] int64: which column of its draft row each token is; -1, or past the row's end, where there is none.

    Args:
        batch: The step.
        place: [n] int64 draft positions that have a draft row.
        token: [n] int64 target ids.
    """
    column = token.clone()
    which_map = batch.draft_map[place]
    for m, inverse in enumerate(batch.inverse_maps):
        at = which_map == m
        mapped = (token[at] >= 0) & (token[at] < len(inverse))
        column[at] = torch.where(mapped, inverse[token[at].clamp(0, len(inverse) - 1)].long(), -1)
    return column


def _wave(
    batch: Batch,
    target_stats: RowStats | LazyRowStats,
    draft_stats: RowStats | LazyRowStats,
    alive: Tensor,
    j: int,
    accept_uniform: Tensor,
) -> Wave:
    """Row j of the requests ``alive``, with all that the rules may read of it."""
    row = batch.cu_num_logits[alive].long() + j
    # At a bonus row the place is another request's, or past the end: clamped, and masked by the token.
    drafted = j < batch.draft_lengths[alive]
    place = torch.where(drafted, batch.cu_drafts[alive].long() + j, 0)
    token = torch.full_like(place, -1)
    token[drafted] = batch.draft_token_ids[place[drafted]].long()

    stats = take(target_stats, row)
    # Nothing was drawn at a placeholder, so nothing is compared with the draft row there.
    reads_draft = token >= 0
    reads_draft[token >= 0] = batch.draft_row[place[token >= 0]] >= 0
    draft_row = batch.draft_row[place[reads_draft]].long()
    drafts = take(draft_stats, draft_row)
    return Wave(
        batch=batch,
        request=alive,
        row=row,
        place=place,
        token=token,
        stats=stats,
        target=combine(stats.tile_max, stats.tile_sum, batch.temperature[alive]),
        reads_draft=reads_draft,
        draft=combine(drafts.tile_max, drafts.tile_sum, batch.draft_temperature[alive[reads_draft]]),
        accept_uniform=accept_uniform,
    )


def _accept_uniforms(batch: Batch) -> Tensor:
    """[D] float64: the uniform of the accept test at each draft position."""
    request = torch.repeat_interleave(batch.draft_lengths.long())
    j = torch.arange(len(request)) - batch.cu_drafts.long()[request]
    return uniform(batch.seed[request], batch.position[request] + j, Purpose.ACCEPT, j)


def _with_illegal_id(batch: Batch) -> Tensor:
    """[B] bool: requests with a draft id marked as outside its range."""
    illegal = torch.zeros(len(batch.draft_lengths), dtype=torch.bool)
    illegal[torch.repeat_interleave(batch.draft_lengths.long())[batch.draft_token_ids < -1]] = True
    return illegal


def _is_any(method: Tensor, codes: tuple[MethodCode, ...]) -> Tensor:
    """[n] bool: whether the method is one of these."""
    return torch.isin(method, torch.tensor(codes, dtype=method.dtype))
