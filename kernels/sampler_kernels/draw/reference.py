"""Inverse-CDF draws: first a tile, then a token in it, with one and the same uniform.

What is drawn from is known by two things, the mass of each tile and the masses within a tile. The three laws
(:class:`Target`, :class:`PointResidual`, :class:`DraftResidual`) differ in these alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.elements import (
    CHUNK_ELEMENTS,
    Floats,
    Ints,
    chunks,
    inverse_temperature,
    load,
    load_at,
    mass_,
)
from sampler_kernels.layout import TILE
from sampler_kernels.outcome import Decision, DrawKind, RowStats
from sampler_kernels.philox.reference import Purpose, uniform
from sampler_kernels.stats.reference import LazyRowStats
from sampler_kernels.stats.temperatures import draft_temperature, target_temperature
from sampler_kernels.threads import one_thread

_SPAN_TILES = max(1, CHUNK_ELEMENTS // 2 // TILE)
"""Tiles of one row pair that a residual holds at once: half a chunk for p, and as much for q."""


class Scaled:
    """n rows whose columns are read as masses relative to the row's largest element, times a factor.

    Args:
        rows: The table and its temperatures.
        which: [n] row numbers.
        factor: [n], or None for 1.
    """

    def __init__(self, rows: LazyRowStats, which: Ints, factor: Floats | None = None) -> None:
        self.rows = rows.rows
        self.which = which
        self.totals = rows.totals(which)
        self._maximum = self.totals.maximum[:, None]
        self._inverse = inverse_temperature(rows.temperature[which])[:, None]
        self._factor = None if factor is None else (factor / self.totals.total).astype(np.float32)[:, None]

    def masses(self, at: Ints, start: int, stop: int) -> Tensor:
        """[m, stop - start] float32: columns ``start:stop`` of the ``at``-th of the n rows."""
        return self.from_logits(at, load(self.rows, self.which[at], start, stop))

    def from_logits(self, at: Ints, logits: Tensor) -> Tensor:
        """The same for columns that were loaded already, [m, c] float32, in place."""
        masses = mass_(logits, torch.from_numpy(self._maximum[at]), torch.from_numpy(self._inverse[at]))
        return masses if self._factor is None else masses.mul_(torch.from_numpy(self._factor[at]))


class Target:
    """p of a target row for each of n requests, relative to the row's largest element.

    Args:
        rows: The target rows.
        row: [n], the row that each request draws from.
    """

    def __init__(self, rows: LazyRowStats, row: Ints) -> None:
        self._p = Scaled(rows, row)

    def tile_masses(self) -> Floats:
        """[n, tiles]; a tile with mass has a token with mass."""
        return self._p.totals.tile_masses

    def masses(self, at: Ints, start: int, stop: int) -> Tensor:
        """[m, stop - start] float32: masses of the ids ``start:stop``, for the ``at``-th of the n requests."""
        return self._p.masses(at, start, stop)


class PointResidual(Target):
    """p without the rejected token: what is left of p beside a draft that is a point mass.

    Args:
        rows: The target rows.
        row: [n].
        rejected: [n], the token that did not stand; an id past the vocabulary takes nothing away.
        vocab_size: V.
    """

    def __init__(self, rows: LazyRowStats, row: Ints, rejected: Ints, vocab_size: int) -> None:
        super().__init__(rows, row)
        self._rejected = rejected
        self._vocab_size = vocab_size

    def tile_masses(self) -> Floats:
        """As of the target, but for the tile of the rejected token, which is summed anew.

        Subtracting the token's mass would leave nothing but rounding where it holds nearly all.
        """
        masses = super().tile_masses().copy()
        for t, at in _by_tile(self._rejected // TILE, self._rejected < self._vocab_size, self._vocab_size):
            masses[at, t] = self.masses(at, *_columns(t, self._vocab_size)).sum(-1).numpy()
        return masses

    def masses(self, at: Ints, start: int, stop: int) -> Tensor:
        """As of the target, 0 at the rejected token."""
        masses = super().masses(at, start, stop)
        column = self._rejected[at] - start
        inside = ((column >= 0) & (column < stop - start)).nonzero()[0]
        masses[inside, column[inside]] = 0.0
        return masses


class DraftResidual(Target):
    """max(scale * p - q, 0), q a draft row.

    Args:
        batch: The step.
        rows: The target rows.
        draft_rows: The draft rows.
        row: [n].
        place: [n], draft positions, each with a draft row.
        scale: [n], factor of p.
    """

    def __init__(
        self, batch: Batch, rows: LazyRowStats, draft_rows: LazyRowStats, row: Ints, place: Ints, scale: Floats
    ) -> None:
        self._vocab_size = batch.vocab_size
        self._p = Scaled(rows, row, scale)
        self._q = Scaled(draft_rows, batch.draft_row.numpy()[place].astype(np.int64), np.ones(len(row)))
        self._inverse_maps = batch.inverse_maps
        self._map = batch.draft_map.numpy()[place]

    def tile_masses(self) -> Floats:
        """Summed from both rows, which are read again."""
        out = np.zeros_like(super().tile_masses())
        for at in chunks(np.arange(len(out)), self._vocab_size):
            for first in range(0, out.shape[1], _SPAN_TILES):
                last = min(first + _SPAN_TILES, out.shape[1])
                # Whole tiles, past the vocabulary's end too, unless the row is shorter than one.
                stop = last * TILE if self._vocab_size > TILE else self._vocab_size
                # No name for the masses: it would keep this span's while the next one's are made.
                by_tile = (len(at), last - first, -1)
                out[at, first:last] = self.masses(at, first * TILE, stop).view(by_tile).sum(-1).numpy()
        return out

    def masses(self, at: Ints, start: int, stop: int) -> Tensor:
        """As probabilities, not relative to a maximum."""
        q = self._q.from_logits(at, self._draft_logits(at, start, stop))
        return self._p.masses(at, start, stop).sub_(q).clamp_(min=0.0)

    def _draft_logits(self, at: Ints, start: int, stop: int) -> Tensor:
        """[m, stop - start] float32: the draft rows' logits of the target ids ``start:stop``."""
        row, which_map = self._q.which[at], self._map[at]
        if not self._inverse_maps:
            return load(self._q.rows, row, start, stop)
        out = torch.empty((len(at), stop - start))
        for m in set(which_map.tolist()):
            some = (which_map == m).nonzero()[0]
            if m < 0:
                out[some] = load(self._q.rows, row[some], start, stop)
            else:
                column = np.full((len(some), stop - start), -1, np.int64)
                known = self._inverse_maps[m].numpy()[start:stop]
                column[:, : len(known)] = known
                out[some] = load_at(self._q.rows, row[some], column)
        return out


@one_thread()
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
    rows = LazyRowStats.of(target_stats, batch.target, lambda: target_temperature(batch))
    draft_rows = LazyRowStats.of(draft_stats, batch.draft, lambda: draft_temperature(batch))
    kind, accepted = decision.draw_kind.numpy(), decision.num_accepted.numpy()
    row = batch.cu_num_logits.numpy()[:-1] + accepted.astype(np.int64)
    place = batch.cu_drafts.numpy()[:-1] + accepted.astype(np.int64)
    tokens = np.full(len(row), -1, np.int32)

    r = (kind == DrawKind.ARGMAX).nonzero()[0]
    if len(r):
        tokens[r] = rows.argmax(row[r])

    random = ((kind == DrawKind.TARGET) | (kind == DrawKind.RESIDUAL)).nonzero()[0]
    if len(random):
        u = np.empty(len(row))
        position = batch.position.numpy()[random] + accepted[random]
        u[random] = uniform(batch.seed.numpy()[random], position, Purpose.DRAW, 0)

        residual = random[kind[random] == DrawKind.RESIDUAL]
        beside_row = batch.draft_row.numpy()[place[residual]] >= 0
        r = residual[beside_row]
        if len(r):
            law: Target = DraftResidual(batch, rows, draft_rows, row[r], place[r], decision.scale.numpy()[r])
            tokens[r] = sample(law, u[r], batch.vocab_size)
        r = residual[~beside_row]
        if len(r):
            rejected = batch.draft_token_ids.numpy()[place[r]].astype(np.int64)
            law = PointResidual(rows, row[r], rejected, batch.vocab_size)
            tokens[r] = sample(law, u[r], batch.vocab_size)
        # Last, so that residuals whose mass was 0 by rounding are drawn from p with the rest.
        r = random[tokens[random] < 0]
        if len(r):
            tokens[r] = sample(Target(rows, row[r]), u[r], batch.vocab_size)
    return torch.from_numpy(tokens)


def sample(law: Target, u: Floats, vocab_size: int) -> NDArray[np.int32]:
    """[n]: the smallest id whose inclusive prefix mass exceeds u times the total; -1 where there is no mass."""
    by_tile = law.tile_masses()
    total = by_tile.cumsum(1)[:, -1]
    tile, rest = _first_above(by_tile, u * total)
    tokens = np.full(len(u), -1, np.int32)
    for t, at in _by_tile(tile, total > 0, vocab_size):
        start, stop = _columns(t, vocab_size)
        index, _ = _first_above(law.masses(at, start, stop).numpy(), rest[at])
        tokens[at] = start + index
    return tokens


def _first_above(masses: NDArray[Any], threshold: Floats) -> tuple[Ints, Floats]:
    """Where the prefix sum of each line first exceeds its threshold, and what of the threshold is left there.

    Prefix sums are float64 and taken one after the other, so they never fall, and an entry without mass never exceeds
    what the one before it did not. A threshold that rounding has put at or past the total falls to the last entry with
    mass: the first to reach the total.

    Args:
        masses: [n, m], none negative.
        threshold: [n].

    Returns:
        [n] places, [n] threshold less the mass before them.
    """
    prefix = masses.cumsum(1, dtype=np.float64)
    above = (prefix <= threshold[:, None]).sum(1)
    last = (prefix < prefix[:, -1:]).sum(1)
    place = np.minimum(above, last)
    before = prefix[np.arange(len(place)), place - 1]
    return place, threshold - np.where(place > 0, before, 0.0)


def _by_tile(tile: Ints, wanted: NDArray[np.bool_], vocab_size: int) -> Iterator[tuple[int, Ints]]:
    """The wanted of n requests by their tile, in runs that are worked on together: (tile, places among the n)."""
    for t in set(tile[wanted].tolist()):
        for at in chunks((wanted & (tile == t)).nonzero()[0], min(vocab_size, TILE)):
            yield t, at


def _columns(tile: int, vocab_size: int) -> tuple[int, int]:
    """First column of a tile, and one past its last."""
    return tile * TILE, min((tile + 1) * TILE, vocab_size)
