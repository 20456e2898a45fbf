"""Inverse-CDF draws in plain torch: first a tile, then a token in it, with one and the same uniform.

What is drawn from is known by two things, the mass of each tile and the masses within a tile. The three laws
(:class:`Target`, :class:`PointResidual`, :class:`DraftResidual`) differ in these alone.
"""

from __future__ import annotations

import torch
from sampler_kernels.batch import Batch
from sampler_kernels.elements import CHUNK_ELEMENTS, chunks, divisor, element_, load, load_at
from sampler_kernels.layout import TILE
from sampler_kernels.outcome import Decision, DrawKind, RowStats
from sampler_kernels.philox.reference import Purpose, uniform
from sampler_kernels.stats.reference import LazyRowStats, combine, row_argmax, take, tile_masses
from torch import Tensor

_SPAN_TILES = max(1, CHUNK_ELEMENTS // 4 // TILE)
"""Tiles of one row pair that a residual holds at once: a quarter of a chunk for p, and as much for q."""


class Target:
    """p of one target row for each of n requests, relative to the row's largest element.

    Args:
        batch: The step.
        target_stats: Of the target rows.
        request: [n] int64.
        row: [n] int64, the target row that each request draws from.
    """

    def __init__(self, batch: Batch, target_stats: RowStats | LazyRowStats, request: Tensor, row: Tensor) -> None:
        stats = take(target_stats, row)
        temperature = batch.temperature[request]
        self._batch = batch
        self._request = request
        self._row = row
        self._divisor = divisor(temperature)[:, None]
        self._totals = combine(stats.tile_max, stats.tile_sum, temperature)
        self._tile_masses = tile_masses(stats.tile_max, stats.tile_sum, self._totals.maximum, temperature)

    def tile_masses(self) -> Tensor:
        """[n, tiles] float64; a tile with mass has a token with mass."""
        return self._tile_masses

    def masses(self, at: Tensor, start: int, stop: int) -> Tensor:
        """[m, stop - start] float32: masses of the ids ``start:stop``, for the ``at``-th of the n requests."""
        logits = load(self._batch.target, self._row[at], start, stop)
        return element_(logits, self._totals.maximum[at, None], self._divisor[at]).exp_()


class PointResidual(Target):
    """p without the rejected token: what is left of p beside a draft that is a point mass.

    Args:
        batch: The step.
        target_stats: Of the target rows.
        request: [n] int64.
        row: [n] int64.
        rejected: [n] int64, the token that did not stand; an id past the vocabulary takes nothing away.
    """

    def __init__(
        self, batch: Batch, target_stats: RowStats | LazyRowStats, request: Tensor, row: Tensor, rejected: Tensor
    ) -> None:
        super().__init__(batch, target_stats, request, row)
        self._rejected = rejected

    def tile_masses(self) -> Tensor:
        """As of the target, but for the tile of the rejected token, which is summed anew: subtracting the token's
        mass would leave nothing but rounding where it holds nearly all."""
        masses = self._tile_masses.clone()
        inside = self._rejected < self._batch.vocab_size
        tile = self._rejected // TILE
        for t, at in _by_tile(tile, inside, self._batch.vocab_size):
            masses[at, t] = self.masses(at, *_columns(t, self._batch.vocab_size)).sum(-1).double()
        return masses

    def masses(self, at: Tensor, start: int, stop: int) -> Tensor:
        """As of the target, 0 at the rejected token."""
        masses = super().masses(at, start, stop)
        return masses.masked_fill_(torch.arange(start, stop) == self._rejected[at, None], 0.0)


class DraftResidual(Target):
    """max(scale * p - q, 0), q a draft row.

    Args:
        batch: The step.
        target_stats: Of the target rows.
        draft_stats: Of the draft rows.
        request: [n] int64.
        row: [n] int64.
        place: [n] int64, draft positions, each with a draft row.
        scale: [n] float64, factor of p.
    """

    def __init__(
        self,
        batch: Batch,
        target_stats: RowStats | LazyRowStats,
        draft_stats: RowStats | LazyRowStats,
        request: Tensor,
        row: Tensor,
        place: Tensor,
        scale: Tensor,
    ) -> None:
        super().__init__(batch, target_stats, request, row)
        self._draft_row = batch.draft_row[place].long()
        self._map = batch.draft_map[place]
        temperature = batch.draft_temperature[request]
        stats = take(draft_stats, self._draft_row)
        self._draft_totals = combine(stats.tile_max, stats.tile_sum, temperature)
        self._draft_divisor = divisor(temperature)[:, None]
        self._p_factor = (scale / self._totals.total).float()[:, None]
        self._q_factor = (1 / self._draft_totals.total).float()[:, None]

    def tile_masses(self) -> Tensor:
        """Summed from both rows, which are read again."""
        vocab = self._batch.vocab_size
        out = torch.zeros_like(self._tile_masses)
        for at in chunks(torch.arange(len(self._row)), vocab):
            for first in range(0, out.shape[1], _SPAN_TILES):
                last = min(first + _SPAN_TILES, out.shape[1])
                # A whole number of tiles, past the vocabulary's end too, unless there is but one short one.
                stop = last * TILE if vocab > TILE else vocab
                masses = self.masses(at, first * TILE, stop)
                out[at, first:last] = masses.view(len(at), last - first, -1).sum(-1).double()
        return out

    def masses(self, at: Tensor, start: int, stop: int) -> Tensor:
        """As probabilities, not relative to a maximum."""
        p = super().masses(at, start, stop).mul_(self._p_factor[at])
        q = element_(self._draft_logits(at, start, stop), self._draft_totals.maximum[at, None], self._draft_divisor[at])
        return p.sub_(q.exp_().mul_(self._q_factor[at])).clamp_(min=0.0)

    def _draft_logits(self, at: Tensor, start: int, stop: int) -> Tensor:
        """[m, stop - start] float32: the draft rows' logits of the target ids ``start:stop``."""
        draft, row, which_map = self._batch.draft, self._draft_row[at], self._map[at]
        if bool((which_map < 0).all()):
            return load(draft, row, start, stop)
        out = torch.empty((len(at), stop - start))
        for m in which_map.unique().tolist():
            some = (which_map == m).nonzero().squeeze(1)
            if m < 0:
                out[some] = load(draft, row[some], start, stop)
            else:
                column = torch.full((stop - start,), -1, dtype=torch.int64)
                known = self._batch.inverse_maps[m][start:stop]
                column[: len(known)] = known
                out[some] = load_at(draft, row[some], column.expand(len(some), -1))
        return out


def draw(
    batch: Batch, target_stats: RowStats | LazyRowStats, draft_stats: RowStats | LazyRowStats, decision: Decision
) -> Tensor:
    """Draws the final token of each request.

    Args:
        batch: The step.
        target_stats: Of ``batch.target``, at each row's temperature.
        draft_stats: Of ``batch.draft``, at each row's draft temperature.
        decision: Which row to draw from, and how.

    Returns:
        [B] int32; -1 for a request that failed.
    """
    row = batch.cu_num_logits[:-1].long() + decision.num_accepted
    place = batch.cu_drafts[:-1].long() + decision.num_accepted
    tokens = torch.full((len(row),), -1, dtype=torch.int32)

    greedy = (decision.draw_kind == DrawKind.ARGMAX).nonzero().squeeze(1)
    if len(greedy):
        tokens[greedy] = row_argmax(take(target_stats, row[greedy]))

    random = (decision.draw_kind == DrawKind.TARGET) | (decision.draw_kind == DrawKind.RESIDUAL)
    u = torch.empty(len(row), dtype=torch.float64)
    if bool(random.any()):
        position = (batch.position + decision.num_accepted)[random]
        u[random] = uniform(batch.seed[random], position, Purpose.DRAW, torch.zeros_like(position))

    residual = (decision.draw_kind == DrawKind.RESIDUAL).nonzero().squeeze(1)
    beside_row = batch.draft_row[place[residual]] >= 0
    r = residual[beside_row]
    if len(r):
        law: Target = DraftResidual(batch, target_stats, draft_stats, r, row[r], place[r], decision.scale[r])
        tokens[r] = _sample(law, u[r], batch.vocab_size)
    r = residual[~beside_row]
    if len(r):
        law = PointResidual(batch, target_stats, r, row[r], batch.draft_token_ids[place[r]].long())
        tokens[r] = _sample(law, u[r], batch.vocab_size)

    # Last, so that residuals whose mass was 0 by rounding are drawn from p with the rest.
    r = (random & (tokens < 0)).nonzero().squeeze(1)
    if len(r):
        tokens[r] = _sample(Target(batch, target_stats, r, row[r]), u[r], batch.vocab_size)
    return tokens


def _sample(law: Target, u: Tensor, vocab_size: int) -> Tensor:
    """[n] int32: the smallest id whose inclusive prefix mass exceeds u times the total; -1 where there is no mass."""
    by_tile = law.tile_masses()
    total = by_tile.cumsum(1)[:, -1]
    tile, rest = _first_above(by_tile, u * total)
    tokens = torch.full((len(u),), -1, dtype=torch.int32)
    for t, at in _by_tile(tile, total > 0, vocab_size):
        start, stop = _columns(t, vocab_size)
        index, _ = _first_above(law.masses(at, start, stop), rest[at])
        tokens[at] = (start + index).int()
    return tokens


def _first_above(masses: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """Where the prefix sum of each line first exceeds its threshold, and what of the threshold is left there.

    Prefix sums are float64 and taken one after the other, so they never fall, and an entry without mass never exceeds
    what the one before it did not. A threshold that rounding has put at or past the total falls to the last entry with
    mass: the first to reach the total.

    Args:
        masses: [n, m], none negative.
        threshold: [n] float64.

    Returns:
        [n] int64 places, [n] float64 threshold less the mass before them.
    """
    prefix = masses.cumsum(1, dtype=torch.float64)
    above = torch.searchsorted(prefix, threshold[:, None], right=True)
    last = torch.searchsorted(prefix, prefix[:, -1:].contiguous())
    place = torch.minimum(above, last)
    before = torch.where(place > 0, prefix.gather(1, (place - 1).clamp(min=0)), 0.0)
    return place.squeeze(1), threshold - before.squeeze(1)


def _by_tile(tile: Tensor, wanted: Tensor, vocab_size: int) -> list[tuple[int, Tensor]]:
    """The wanted of n requests by their tile, in runs that are worked on together: (tile, places among the n)."""
    runs = []
    for t in tile[wanted].unique().tolist():
        at = (wanted & (tile == t)).nonzero().squeeze(1)
        runs += [(t, run) for run in chunks(at, min(vocab_size, TILE))]
    return runs


def _columns(tile: int, vocab_size: int) -> tuple[int, int]:
    """First column of a tile, and one past its last."""
    return tile * TILE, min((tile + 1) * TILE, vocab_size)
