"""Maxima, masses and argmaxes of the tiles of a row, and maxima of its groups, in plain torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from sampler_kernels.elements import chunks, divisor, effective, element_, load, load_at, rows_at_once
from sampler_kernels.layout import GROUP, TILE, num_groups, num_tiles
from sampler_kernels.outcome import RowStats
from sampler_kernels.rows import RowTable
from torch import Tensor


_NOTHING = -80.0
"""A tile whose largest element lies this far below the row's, in units of the temperature, counts as empty. e^-80 is far
below what a 52-bit uniform can hit, and it keeps the elements of every other tile within float32 when they are taken
relative to the row's maximum: a tile with mass has a token with mass."""


class LazyRowStats:
    """Row statistics that are computed when a row is first asked for, and kept.

    A rejection makes the later rows of its request moot; on a CPU, where rows are computed one after the other
    anyway, not computing them is the largest saving there is.

    A row's numbers depend on nothing but the row and its temperature: not on the rows that are asked for with it,
    on where it lies in memory, nor on the number of threads. Every sum runs over a span of columns that the row's
    width alone fixes.

    Args:
        rows: R rows.
        temperature: [R] float64; 0 counts as 1.
        raw: Whether sums at temperature 1 may be asked for.
    """

    def __init__(self, rows: RowTable, temperature: Tensor, *, raw: bool) -> None:
        self.rows = rows
        self.temperature = temperature
        count, tiles = len(rows), num_tiles(max(1, rows.max_width))  # a table without rows still has a shape
        self._divisor = divisor(temperature)
        self._known = torch.zeros(count, dtype=torch.bool)
        self._raw_known = torch.zeros(count if raw else 0, dtype=torch.bool)
        self._stats = RowStats(
            tile_max=torch.empty((count, tiles)),
            tile_sum=torch.empty((count, tiles)),
            tile_raw_sum=torch.empty((count, tiles)) if raw else None,
            tile_argmax=torch.empty((count, tiles), dtype=torch.int32),
            group_max=torch.empty((count, num_groups(max(1, rows.max_width)))),
        )

    def take(self, which: Tensor, *, raw: bool = False) -> RowStats:
        """Statistics of some rows.

        Args:
            which: [n] int64, distinct row numbers.
            raw: Whether ``tile_raw_sum`` is wanted: another pass over the rows whose temperature is not 1.

        Returns:
            Of n rows, in the order asked for.
        """
        self._compute(which[~self._known[which]])
        if raw:
            self._compute_raw(which[~self._raw_known[which]])
        return _select(self._stats, which, raw=raw)

    def _compute(self, which: Tensor) -> None:
        """Fills in the rows ``which``, all but the raw sums."""
        kept = self._stats
        for span, part in self._spans(which):
            buffer = torch.empty((min(len(part), rows_at_once(span.padded)), span.padded))
            for row in chunks(part, span.padded):
                tile = span.load(self.rows, row, buffer)
                group_max = tile.view(len(row), span.tiles, -1, span.group).amax(-1)
                tile_max, first = group_max.max(-1)  # of equal groups the first
                # +inf is as bad as NaN, and NaN survives every later maximum.
                tile_max.masked_fill_(tile_max == math.inf, math.nan)
                argmax = _argmax(tile, first, span)
                element_(tile, tile_max[:, :, None], self._divisor[row][:, None, None]).exp_()
                kept.tile_max[row] = _padded(tile_max, kept.tile_max.shape[1], -math.inf)
                kept.tile_sum[row] = _padded(tile.sum(-1), kept.tile_sum.shape[1], 0.0)
                kept.tile_argmax[row] = _padded(argmax, kept.tile_argmax.shape[1], 0)
                groups = group_max.view(len(row), -1)[:, : num_groups(span.width)]
                kept.group_max[row] = _padded(groups, kept.group_max.shape[1], -math.inf)
        self._known[which] = True

    def _compute_raw(self, which: Tensor) -> None:
        """Fills in the raw sums of the rows ``which``, whose other statistics are there."""
        kept = self._stats
        assert kept.tile_raw_sum is not None
        same = self._divisor[which] == 1
        kept.tile_raw_sum[which[same]] = kept.tile_sum[which[same]]
        one = torch.ones((1, 1, 1))
        for span, part in self._spans(which[~same]):
            buffer = torch.empty((min(len(part), rows_at_once(span.padded)), span.padded))
            for row in chunks(part, span.padded):
                tile = span.load(self.rows, row, buffer)
                element_(tile, kept.tile_max[row, : span.tiles, None], one).exp_()
                kept.tile_raw_sum[row] = _padded(tile.sum(-1), kept.tile_raw_sum.shape[1], 0.0)
        self._raw_known[which] = True

    def _spans(self, which: Tensor) -> list[tuple[_Span, Tensor]]:
        """``which`` split by row width, each with the way rows of this width are cut up."""
        if len(self.rows.blocks) == 1:
            return [(_Span.of(self.rows.max_width), which)] if len(which) else []
        width = torch.from_numpy(self.rows.widths())[which]
        return [(_Span.of(w), which[width == w]) for w in width.unique().tolist()]


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

    def load(self, rows: RowTable, which: Tensor, buffer: Tensor) -> Tensor:
        """Loads rows into the buffer, [n, tiles, tile]."""
        return load(rows, which, 0, self.padded, out=buffer[: len(which)]).view(len(which), self.tiles, self.tile)


def _argmax(tile: Tensor, first: Tensor, span: _Span) -> Tensor:
    """Lowest id that reaches the maximum of its tile, [n, tiles] int32.

    Args:
        tile: [n, tiles, tile] logits.
        first: [n, tiles] the first group that reaches the tile's maximum.
        span: How the row is cut up.
    """
    n, tiles = first.shape
    groups = tile.view(n, tiles, -1, span.group)
    group = groups[torch.arange(n)[:, None], torch.arange(tiles), first]
    start = torch.arange(tiles) * span.tile + first * span.group
    return (start + group.argmax(-1)).to(torch.int32)


def _padded(values: Tensor, width: int, fill: float) -> Tensor:
    """``values`` [n, m] with columns of ``fill`` up to ``width``: rows narrower than the table's widest."""
    if values.shape[1] == width:
        return values
    return torch.nn.functional.pad(values, (0, width - values.shape[1]), value=fill)


def _select(stats: RowStats, which: Tensor, *, raw: bool) -> RowStats:
    """The rows ``which`` of dense statistics."""
    return RowStats(
        tile_max=stats.tile_max[which],
        tile_sum=stats.tile_sum[which],
        tile_raw_sum=stats.tile_raw_sum[which] if raw and stats.tile_raw_sum is not None else None,
        tile_argmax=stats.tile_argmax[which],
        group_max=stats.group_max[which],
    )


def stats(rows: RowTable, temperature: Tensor, *, raw: bool) -> RowStats:
    """Statistics of every row.

    Args:
        rows: R rows.
        temperature: [R] float64; 0 counts as 1.
        raw: Whether sums at temperature 1 are wanted too.
    """
    return LazyRowStats(rows, temperature, raw=raw).take(torch.arange(len(rows)), raw=raw)


def take(source: RowStats | LazyRowStats, which: Tensor, *, raw: bool = False) -> RowStats:
    """Statistics of the rows ``which``, [n] int64 distinct, computed now if the source is lazy.

    Args:
        source: Of every row, computed or not.
        which: Row numbers.
        raw: Whether ``tile_raw_sum`` is wanted.
    """
    return source.take(which, raw=raw) if isinstance(source, LazyRowStats) else _select(source, which, raw=raw)


@dataclass(frozen=True, eq=False)
class RowTotals:
    """What n whole rows come to.

    Attributes:
        maximum: [n] float32; NaN if the row holds NaN or +inf.
        total: [n] float64, sum of exp((x - maximum) / T): the log-sum-exp of the row is (maximum, log total).
        bad: [n] bool, nothing can be drawn from the row: NaN, +inf, or no element above -inf.
    """

    maximum: Tensor
    total: Tensor
    bad: Tensor


def combine(tile_max: Tensor, tile_sum: Tensor, temperature: Tensor) -> RowTotals:
    """Joins the tiles of each row.

    Args:
        tile_max: [n, tiles] float32.
        tile_sum: [n, tiles] float32.
        temperature: [n] float64; 0 counts as 1.
    """
    maximum = tile_max.amax(1)
    masses = tile_masses(tile_max, tile_sum, maximum, temperature)
    return RowTotals(maximum, masses.cumsum(1)[:, -1], ~maximum.isfinite())


def tile_masses(tile_max: Tensor, tile_sum: Tensor, maximum: Tensor, temperature: Tensor) -> Tensor:
    """[n, tiles] float64: mass of each tile relative to the row's maximum. See :func:`combine` for the arguments."""
    below = (tile_max.double() - maximum.double()[:, None]) / effective(temperature)[:, None]
    return tile_sum.double() * torch.where(below < _NOTHING, 0.0, below.exp())


def row_argmax(stats: RowStats) -> Tensor:
    """[n] int32: lowest id that reaches the maximum of its row."""
    first = stats.tile_max.argmax(1, keepdim=True)
    return stats.tile_argmax.gather(1, first).squeeze(1)


def probability(rows: RowTable, which: Tensor, ids: Tensor, totals: RowTotals, temperature: Tensor) -> Tensor:
    """[n] float64: probability of one column of each row, 0 for a column that the row does not have.

    Args:
        rows: The table.
        which: [n] int64 row numbers.
        ids: [n] int64 columns.
        totals: Of those rows.
        temperature: [n] float64; 0 counts as 1.
    """
    element = element_(load_at(rows, which, ids), totals.maximum, divisor(temperature))
    return element.double().exp() / totals.total
