"""Maxima, masses and argmaxes of the tiles of a row, and maxima of its groups, in plain torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sampler_kernels.elements import (
    Floats,
    Ints,
    chunks,
    inverse_temperature,
    load,
    load_at,
    load_groups,
    mass_,
    rows_at_once,
)
from sampler_kernels.filters.reference import Unfiltered, cut
from sampler_kernels.layout import GROUP, TILE, num_groups, num_tiles
from sampler_kernels.outcome import RowStats
from sampler_kernels.rows import RowTable
from sampler_kernels.views import edited
from torch import Tensor

_EMPTY_TILE = -80.0
"""A tile whose largest element lies this far below the row's, in units of the temperature, counts as empty. e^-80 is far
below what a 52-bit uniform can hit, and it keeps the masses of every other tile within float32 when they are taken
relative to the row's maximum: a tile with mass has a token with mass."""


_FEW_GROUPS = 8
"""A filtered row is summed group by group when at most one group in so many has anything left."""


@dataclass(frozen=True, eq=False)
class RowTotals:
    """What n whole rows come to.

    Attributes:
        maximum: [n] float32; NaN if the row holds NaN or +inf.
        total: [n] float64, sum of exp((x - maximum) / T): the log-sum-exp of the row is (maximum, log total).
        tile_masses: [n, tiles] float64, what each tile adds to ``total``.
        bad: [n] bool, nothing can be drawn from the row: NaN, +inf, or no element above -inf.
    """

    maximum: NDArray[np.float32]
    total: Floats
    tile_masses: Floats
    bad: NDArray[np.bool_]

    def at(self, which: Ints) -> RowTotals:
        """Of some of the n rows."""
        return RowTotals(self.maximum[which], self.total[which], self.tile_masses[which], self.bad[which])


class LazyRowStats:
    """Row statistics that are computed when a row is first asked for, and kept.

    A rejection makes the later rows of its request moot; on a CPU, where rows are computed one after the other
    anyway, not computing them is the largest saving there is.

    A row's numbers depend on nothing but the row and its temperature: not on the rows that are asked for with it,
    on where it lies in memory, nor on the number of threads. Every sum runs over a span of columns that the row's
    width alone fixes.

    Args:
        rows: R rows, processed or not. Their sums are of what masks and filters leave; maxima of tiles and groups are
            of what masks leave, and bounds of the rest.
        temperature: [R] float64; 0 counts as 1.
        raw: Whether sums at temperature 1 may be asked for.
    """

    def __init__(self, rows: RowTable, temperature: Tensor, *, raw: bool) -> None:
        self.rows = rows
        given = temperature.double().numpy()
        self.temperature: Floats = np.where(given == 0, 1.0, given)
        self._inverse = inverse_temperature(self.temperature)
        count = len(rows)
        width = max(1, rows.max_width)  # a table without rows still has a shape
        self._before_filters = rows.unfiltered
        self._filtered = np.zeros(count, np.bool_)
        if rows.processing is not None and rows.processing.filters is not None:
            self._filtered = rows.processing.filters.active.numpy()
        self._edited = edited(rows.processing, count)
        self._shared_with: LazyRowStats | None = None
        self._raw_rows: LazyRowStats | None = None
        self._known = np.zeros(count, np.bool_)
        self._raw_known = np.zeros(count if raw else 0, np.bool_)
        self._tile_max = np.empty((count, num_tiles(width)), np.float32)
        self._tile_sum = np.empty((count, num_tiles(width)), np.float32)
        self._raw_sum = np.empty((count if raw else 0, num_tiles(width)), np.float32)
        self._group_max = np.empty((count, num_groups(width)), np.float32)

    @classmethod
    def of(cls, stats: RowStats | LazyRowStats, rows: RowTable, temperature: Tensor) -> LazyRowStats:
        """The same interface over statistics that another backend computed, all at once; lazy ones as they are.

        Args:
            stats: Of the R rows.
            rows: R rows.
            temperature: [R] float64, what the rows were computed at.
        """
        if isinstance(stats, LazyRowStats):
            return stats
        self = cls(rows, temperature, raw=stats.tile_raw_sum is not None)
        self._known[:] = True
        self._raw_known[:] = True
        self._tile_max, self._tile_sum = stats.tile_max.numpy(), stats.tile_sum.numpy()
        self._group_max = stats.group_max.numpy()
        if stats.tile_raw_sum is not None:
            self._raw_sum = stats.tile_raw_sum.numpy()
        return self

    def take(self, which: Ints, *, raw: bool = False) -> RowStats:
        """Everything about some rows.

        Args:
            which: [n] distinct row numbers.
            raw: Whether ``tile_raw_sum`` is wanted: another pass over the rows whose temperature is not 1.

        Returns:
            Of n rows, in the order asked for.
        """
        self._compute(which)
        if raw:
            self._compute_raw(which)
        return RowStats(
            tile_max=torch.from_numpy(self._tile_max[which]),
            tile_sum=torch.from_numpy(self._tile_sum[which]),
            tile_raw_sum=torch.from_numpy(self._raw_sum[which]) if raw else None,
            tile_argmax=torch.from_numpy(self._tile_argmax(which)),
            group_max=torch.from_numpy(self._group_max[which]),
        )

    def totals(self, which: Ints) -> RowTotals:
        """Of some rows, at their temperatures."""
        self._compute(which)
        return combine(self._tile_max[which], self._tile_sum[which], self.temperature[which])

    def raw_totals(self, which: Ints) -> RowTotals:
        """Of some rows, at temperature 1."""
        self._compute_raw(which)
        return combine(self._tile_max[which], self._raw_sum[which], np.ones(len(which)))

    def raw_rows(self) -> LazyRowStats:
        """Statistics of the rows as the client gave them, for their maxima and :meth:`raw_totals`.

        Where masks and edits change no row these are the same; else rows that they do not touch are not read again.
        """
        if not self._edited.any():
            return self
        if self._raw_rows is None:
            self._raw_rows = LazyRowStats(self.rows.raw, torch.ones(len(self.rows), dtype=torch.float64), raw=True)
            self._raw_rows._shared_with = self
        return self._raw_rows

    def group_max(self, which: Ints) -> NDArray[np.float32]:
        """[n, groups] of some rows."""
        self._compute(which)
        return self._group_max[which]

    def argmax(self, which: Ints) -> Ints:
        """[n]: lowest id that reaches the maximum of its row; meaningless for a bad row."""
        groups = self.group_max(which)
        first = (groups == groups.max(1, keepdims=True)).argmax(1)
        return self._first_of_group(which, first[:, None])[:, 0]

    def _compute(self, which: Ints) -> None:
        """Fills in what is missing of the rows ``which``, all but the raw sums."""
        which = which[~self._known[which]]
        if self._shared_with is not None:
            which = self._take_over(self._shared_with, which)
        for span, part in self._spans(which):
            buffer = torch.empty((min(len(part), rows_at_once(span.padded)), span.padded))
            for row in chunks(part, span.padded):
                tile = span.load(self._before_filters, row, buffer)
                group_max = tile.view(len(row), span.tiles, -1, span.group).amax(-1)
                tile_max = group_max.amax(-1)
                mass_(tile, tile_max[:, :, None], self._inverse[row][:, None, None])
                known_max = tile_max.numpy()
                known_max[known_max == math.inf] = math.nan  # as bad, and NaN survives every later maximum
                _put(self._tile_max, row, known_max, -math.inf)
                _put(self._tile_sum, row, tile.sum(-1).numpy(), 0.0)
                groups = group_max.view(len(row), -1)[:, : num_groups(span.width)]
                _put(self._group_max, row, groups.numpy(), -math.inf)
        self._known[which] = True
        filtered = which[self._filtered[which]]
        if len(filtered):
            self._filter(filtered)

    def _take_over(self, other: LazyRowStats, which: Ints) -> Ints:
        """Takes what ``other``, whose rows are the processed ones, knows of rows that it does not edit.

        Returns:
            The rows of ``which`` that it does edit.
        """
        same = which[~other._edited[which]]
        other._compute_raw(same)
        self._tile_max[same], self._group_max[same] = other._tile_max[same], other._group_max[same]
        self._tile_sum[same] = other._raw_sum[same]
        self._known[same] = True
        return which[other._edited[which]]

    def _filter(self, which: Ints) -> None:
        """Cuts rows whose statistics are there, and sums again what is left of them; maxima stay bounds of it."""
        assert self.rows.processing is not None
        assert self.rows.processing.filters is not None
        if len(self._raw_known):
            same = which[(self.temperature[which] == 1) & ~self._edited[which]]
            self._raw_sum[same], self._raw_known[same] = self._tile_sum[same], True
        totals = combine(self._tile_max[which], self._tile_sum[which], self.temperature[which])
        which, totals = which[~totals.bad], totals.at((~totals.bad).nonzero()[0])
        group_max, temperature = self._group_max[which], self.temperature[which]
        given = Unfiltered(self._before_filters, which, totals.maximum, totals.total, group_max, temperature)
        cut(self.rows.processing.filters, given)
        reached = group_max >= self.rows.processing.filters.cut_value.numpy()[which, None]
        few = reached.sum(1) * _FEW_GROUPS <= reached.shape[1]
        self._sum_groups(which[few], *reached[few].nonzero())
        self._sum_tiles(which[~few], self._tile_sum, self._inverse)

    def _sum_groups(self, which: Ints, line: Ints, group: Ints) -> None:
        """Sums anew the tiles of rows of which only some groups, given by row and ascending, have any mass."""
        sums = np.zeros((len(which), self._tile_sum.shape[1]))
        tile = group * GROUP // TILE
        for at in chunks(np.arange(len(line)), GROUP):
            row = which[line[at]]
            logits = load_groups(self.rows, row, group[at])
            mass_(logits, torch.from_numpy(self._tile_max[row, tile[at]])[:, None], self._inverse[row][:, None])
            np.add.at(sums, (line[at], tile[at]), logits.numpy().sum(1))
        self._tile_sum[which] = sums

    def _sum_tiles(self, which: Ints, into: NDArray[np.float32], inverse: Tensor, rows: RowTable | None = None) -> None:
        """Sums the tiles of rows into lines of ``into``, at temperatures of which ``inverse`` [R] holds the inverses."""
        for span, part in self._spans(which):
            buffer = torch.empty((min(len(part), rows_at_once(span.padded)), span.padded))
            for row in chunks(part, span.padded):
                tile = span.load(rows or self.rows, row, buffer)
                tile_max = torch.from_numpy(self._tile_max[row, : span.tiles])[:, :, None]
                mass_(tile, tile_max, inverse[row][:, None, None])
                _put(into, row, tile.sum(-1).numpy(), 0.0)

    def _compute_raw(self, which: Ints) -> None:
        """Fills in what is missing of the raw sums of the rows ``which``."""
        self._compute(which)
        which = which[~self._raw_known[which]]
        same = (self.temperature[which] == 1) & ~self._filtered[which]
        self._raw_sum[which[same]] = self._tile_sum[which[same]]
        one = inverse_temperature(np.ones(1)).expand(len(self.temperature))
        self._sum_tiles(which[~same], self._raw_sum, one, self.rows.raw)
        self._raw_known[which] = True

    def _spans(self, which: Ints) -> list[tuple[_Span, Ints]]:
        """``which`` split by row width, each with the way rows of this width are cut up."""
        if not len(which):
            return []
        if len(self.rows.blocks) == 1:
            return [(_Span.of(self.rows.max_width), which)]
        widths = self.rows.widths()[which]
        return [(_Span.of(int(w)), which[widths == w]) for w in np.unique(widths)]

    def _tile_argmax(self, which: Ints) -> NDArray[np.int32]:
        """[n, tiles]: lowest id that reaches the maximum of its tile."""
        tiles, per_tile = self._tile_max.shape[1], TILE // GROUP
        groups = np.full((len(which), tiles * per_tile), -math.inf, np.float32)
        groups[:, : self._group_max.shape[1]] = self._group_max[which]
        within = groups.reshape(len(which), tiles, per_tile)
        first = (within == within.max(2, keepdims=True)).argmax(2) + np.arange(tiles) * per_tile
        return self._first_of_group(which, first).astype(np.int32)

    def _first_of_group(self, which: Ints, group: Ints) -> Ints:
        """[n, g]: lowest id that reaches the maximum of each of g groups of each row."""
        out = np.empty(group.shape, np.int64)
        width = min(GROUP, self.rows.max_width)
        for at in chunks(np.arange(len(which)), group.shape[1] * width):
            logits = load_groups(self.rows, np.repeat(which[at], group.shape[1]), group[at].reshape(-1)).numpy()
            first = (logits == logits.max(1, keepdims=True)).argmax(1)
            out[at] = group[at] * GROUP + first.reshape(len(at), -1)
        return out


@dataclass(frozen=True)
class _Span:
    """How rows of one width are cut up. A row below one tile, or one group, is not padded to it."""

    width: int
    group: int
    tile: int

    @staticmethod
    def of(width: int) -> _Span:
        group = min(width, GROUP)
        return _Span(width, group, min(-(-width // group) * group, TILE))

    @property
    def tiles(self) -> int:
        return num_tiles(self.width)

    @property
    def padded(self) -> int:
        """Columns with the last tile made whole."""
        return self.tiles * self.tile

    def load(self, rows: RowTable, which: Ints, buffer: Tensor) -> Tensor:
        """Loads rows into the buffer, [n, tiles, tile]."""
        return load(rows, which, 0, self.padded, out=buffer[: len(which)]).view(len(which), self.tiles, self.tile)


def _put(into: NDArray[np.float32], row: Ints, values: NDArray[np.float32], fill: float) -> None:
    """Writes lines of ``into``, which are as wide as the table's widest row needs."""
    width = values.shape[1]
    into[row, :width] = values
    if width < into.shape[1]:
        into[row, width:] = fill


def stats(rows: RowTable, temperature: Tensor, *, raw: bool) -> RowStats:
    """Statistics of every row.

    Args:
        rows: R rows.
        temperature: [R] float64; 0 counts as 1.
        raw: Whether sums at temperature 1 are wanted too.
    """
    return LazyRowStats(rows, temperature, raw=raw).take(np.arange(len(rows)), raw=raw)


def combine(tile_max: NDArray[np.float32], tile_sum: NDArray[np.float32], temperature: Floats) -> RowTotals:
    """Joins the tiles of each row.

    Args:
        tile_max: [n, tiles].
        tile_sum: [n, tiles].
        temperature: [n], above 0.
    """
    maximum = tile_max.max(1)
    # The smallest finite number stands in for -inf, so that what lies below it is -inf and not NaN.
    floor = np.maximum(maximum, np.finfo(np.float32).min).astype(np.float64)
    below = (tile_max - floor[:, None]) / temperature[:, None]
    masses = tile_sum * np.where(below < _EMPTY_TILE, 0.0, np.exp(below))
    # A running sum adds tile after tile, however many rows there are.
    return RowTotals(maximum, masses.cumsum(1)[:, -1], masses, ~np.isfinite(maximum))


def probability(rows: LazyRowStats, which: Ints, ids: Ints, totals: RowTotals) -> Floats:
    """[n]: probability of one column of each row in float64, 0 for a column that the row does not have.

    Args:
        rows: The table and its temperatures.
        which: [n] row numbers.
        ids: [n] columns.
        totals: Of those rows.
    """
    logit = load_at(rows.rows, which, ids).double().numpy()
    with np.errstate(invalid="ignore"):  # a bad row gives NaN, which no comparison passes
        return np.exp((logit - totals.maximum) / rows.temperature[which]) / totals.total
