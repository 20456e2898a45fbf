"""Maxima, masses and argmaxes of the tiles of a row, and maxima of its groups, in plain torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.elements import (
    Floats,
    Ints,
    below_,
    chunks,
    exp2_,
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
from sampler_kernels.processing import RowFilters
from sampler_kernels.rows import RowTable
from sampler_kernels.threads import one_thread
from sampler_kernels.views import edited, prepare

_EMPTY_TILE = -80.0
"""A tile whose largest element lies this far below the row's, in units of the temperature, counts as empty. e^-80 is
far below what a 52-bit uniform can hit, and it keeps the masses of every other tile within float32 when they are taken
relative to the row's maximum: a tile with mass has a token with mass."""

_RAW = float(inverse_temperature(np.ones(1))[0])
"""What temperature 1 multiplies by."""


_FEW_GROUPS = 8
"""A filtered row is summed group by group where at most one group in so many has anything left."""


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
        rows: R rows, processed or not. Sums are of what masks and filters leave; maxima are of what masks leave, and
            bounds of what filters leave.
        temperature: [R] float64; 0 counts as 1.
        raw: Whether sums of the client's rows at temperature 1 are wanted too. They come out of the same pass, since a
            row that is asked for will be emitted from, and its logprobs then need them.
    """

    supplied = False
    """Whether some rows are not read, their log-sum-exp being known."""

    def __init__(self, rows: RowTable, temperature: Tensor, *, raw: bool) -> None:
        self.rows = rows
        given = temperature.double().numpy()
        self.temperature: Floats = np.where(given == 0, 1.0, given)
        self._inverse = inverse_temperature(self.temperature)
        self._is_raw = self.temperature == 1
        count = len(rows)
        width = max(1, rows.max_width)  # a table without rows still has a shape
        self._has_raw = raw
        self._known = np.zeros(count, np.bool_)
        self._before_filters = rows.unfiltered
        self._edited = edited(rows.processing, count)
        self._filters = None if rows.processing is None else rows.processing.filters
        self._raw_rows: LazyRowStats | None = None
        self._edits_of: LazyRowStats | None = None
        self._tile_max = np.empty((count, num_tiles(width)), np.float32)
        self._tile_sum = np.empty((count, num_tiles(width)), np.float32)
        self._raw_sum = np.empty((count if raw else 0, num_tiles(width)), np.float32)
        self._group_max = np.empty((count, num_groups(width)), np.float32)

    @classmethod
    def of(cls, stats: RowStats | LazyRowStats, rows: RowTable, temperature: Callable[[], Tensor]) -> LazyRowStats:
        """The same interface over statistics that another backend computed, all at once; lazy ones as they are.

        Args:
            stats: Of the R rows.
            rows: R rows.
            temperature: Gives [R] float64, what the rows were computed at.
        """
        if isinstance(stats, LazyRowStats):
            return stats
        self = cls(rows, temperature(), raw=stats.tile_raw_sum is not None)
        self._known[:] = True
        self._tile_max, self._tile_sum = stats.tile_max.numpy(), stats.tile_sum.numpy()
        self._group_max = stats.group_max.numpy()
        if stats.tile_raw_sum is not None:
            self._raw_sum = stats.tile_raw_sum.numpy()
        return self

    def take(self, which: Ints) -> RowStats:
        """Everything about some rows, [n] distinct row numbers, in the order asked for."""
        self._compute(which)
        return RowStats(
            tile_max=torch.from_numpy(self._tile_max[which]),
            tile_sum=torch.from_numpy(self._tile_sum[which]),
            tile_raw_sum=torch.from_numpy(self._raw_sum[which]) if self._has_raw else None,
            tile_argmax=torch.from_numpy(self._tile_argmax(which)),
            group_max=torch.from_numpy(self._group_max[which]),
        )

    def totals(self, which: Ints) -> RowTotals:
        """Of some rows, at their temperatures."""
        self._compute(which)
        return combine(self._tile_max[which], self._tile_sum[which], self.temperature[which])

    def raw_rows(self) -> LazyRowStats:
        """Statistics of the rows as the client gave them: to be asked for :meth:`raw_totals` and maxima.

        Where nothing is masked or edited these are the same; else only rows that are will be read again.
        """
        if not self._edited.any():
            return self
        if self._raw_rows is None:
            self._raw_rows = type(self)(self.rows.raw, torch.ones(len(self.rows), dtype=torch.float64), raw=True)
            self._raw_rows._edits_of = self  # noqa: SLF001  (of the same class)
        return self._raw_rows

    def raw_totals(self, which: Ints) -> RowTotals:
        """Of some rows, as the client gave them, at temperature 1; for rows that are edited see :meth:`raw_rows`."""
        assert self._has_raw, "sums at temperature 1 were not asked for"
        self._compute(which)
        return combine(self._tile_max[which], self._raw_sum[which], np.ones(len(which)))

    def log_sum_exp(self, which: Ints, *, raw: bool) -> Floats:
        """[n]: ln of the sum of exp(x / T) of some rows, or of exp(x) of the rows as the client gave them."""
        totals = self.raw_rows().raw_totals(which) if raw else self.totals(which)
        temperature = 1.0 if raw else self.temperature[which]
        return totals.maximum.astype(np.float64) / temperature + np.log(totals.total)

    def group_max(self, which: Ints) -> NDArray[np.float32]:
        """[n, groups] of some rows."""
        self._compute(which)
        return self._group_max[which]

    def unreadable(self, which: Ints, columns: Ints) -> NDArray[np.bool_]:  # noqa: ARG002 - see SuppliedRowStats
        """[n], whether single columns are gathered from rows that are not read, and are bad. Here all rows are read."""
        return np.zeros(len(which), np.bool_)

    def contradicts(self, which: Ints) -> NDArray[np.bool_]:
        """[n], whether rows are not what the caller said of them, who here has said nothing."""
        return np.zeros(len(which), np.bool_)

    def argmax(self, which: Ints) -> Ints:
        """[n]: lowest id that reaches the maximum of its row; meaningless for a bad row."""
        groups = self.group_max(which)
        first = (groups == groups.max(1, keepdims=True)).argmax(1)
        return self._first_of_group(which, first[:, None])[:, 0]

    @one_thread()
    def _compute(self, which: Ints) -> None:
        """Fills in what is missing of the rows ``which``."""
        known = self._known[which]
        if known.all():
            return
        which = which[~known]
        self._known[which] = True
        if self._edits_of is not None:
            which = self._take_over(self._edits_of, which)
        prepare(self.rows.processing, which)
        for span, part in self._spans(which):
            buffer = torch.empty((min(len(part), rows_at_once(span.padded)), span.padded))
            for row in chunks(part, span.padded):
                tile = span.load(self._before_filters, row, buffer)
                group_max = tile.view(len(row), span.tiles, -1, span.group).amax(-1)
                tile_max = group_max.amax(-1)
                below_(tile, tile_max[:, :, None])
                tile_is_raw = bool(self._is_raw[row].all())
                if self._has_raw and not tile_is_raw and not self._edited[row].all():
                    _put(self._raw_sum, row, _raw_sum(tile), 0.0)
                tile_sum = exp2_(tile.mul_(torch.from_numpy(self._inverse[row])[:, None, None])).sum(-1).numpy()
                _put(self._tile_sum, row, tile_sum, 0.0)
                if self._has_raw and tile_is_raw:
                    _put(self._raw_sum, row, tile_sum, 0.0)
                known_max = tile_max.numpy()
                known_max[known_max == math.inf] = math.nan  # as bad, and NaN survives every later maximum
                _put(self._tile_max, row, known_max, -math.inf)
                groups = group_max.view(len(row), -1)[:, : num_groups(span.width)]
                _put(self._group_max, row, groups.numpy(), -math.inf)
        if self._filters is not None:
            self._filter(self._filters, which[self._filters.active.numpy()[which]])

    def _take_over(self, other: LazyRowStats, which: Ints) -> Ints:
        """Takes what the statistics of the processed rows say of those that are not edited, and returns the others."""
        same = which[~other._edited[which]]
        other._compute(same)
        self._tile_max[same], self._group_max[same] = other._tile_max[same], other._group_max[same]
        self._tile_sum[same] = self._raw_sum[same] = other._raw_sum[same]
        return which[other._edited[which]]

    def _filter(self, filters: RowFilters, which: Ints) -> None:
        """Cuts rows whose statistics are there, and sums again what is left of them."""
        totals = combine(self._tile_max[which], self._tile_sum[which], self.temperature[which])
        good = (~totals.bad).nonzero()[0]
        which, totals = which[good], totals.at(good)
        if not len(which):
            return
        group_max = self._group_max[which]
        temperature = self.temperature[which]
        cut(filters, Unfiltered(self._before_filters, which, totals.maximum, totals.total, group_max, temperature))
        reached = group_max >= filters.cut_value.numpy()[which, None]
        few = reached.sum(1) * _FEW_GROUPS <= reached.shape[1]
        self._sum_groups(which[few], reached[few])
        self._sum_tiles(which[~few])

    def _sum_groups(self, which: Ints, reached: NDArray[np.bool_]) -> None:
        """Sums rows again, [n], of which something is left in the groups ``reached``, [n, groups], alone."""
        sums = np.zeros((len(which), self._tile_sum.shape[1]))
        line, group = reached.nonzero()
        tile = group * GROUP // TILE
        for at in chunks(np.arange(len(line)), GROUP):
            row = which[line[at]]
            logits = load_groups(self.rows, row, group[at])
            mass = mass_(
                logits,
                torch.from_numpy(self._tile_max[row, tile[at]])[:, None],
                torch.from_numpy(self._inverse[row])[:, None],
            )
            np.add.at(sums, (line[at], tile[at]), mass.numpy().sum(1))
        self._tile_sum[which] = sums

    def _sum_tiles(self, which: Ints) -> None:
        """Sums rows again, reading them whole."""
        for span, part in self._spans(which):
            buffer = torch.empty((min(len(part), rows_at_once(span.padded)), span.padded))
            for row in chunks(part, span.padded):
                tile = span.load(self.rows, row, buffer)
                mass_(
                    tile,
                    torch.from_numpy(self._tile_max[row, : span.tiles])[:, :, None],
                    torch.from_numpy(self._inverse[row])[:, None, None],
                )
                _put(self._tile_sum, row, tile.sum(-1).numpy(), 0.0)

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
            logits = load_groups(self.rows, which[at], group[at]).numpy()
            out[at] = group[at] * GROUP + (logits == logits.max(2, keepdims=True)).argmax(2)
        return out


@dataclass(frozen=True)
class _Span:
    """How rows of one width are cut up. A row below one tile, or one group, is not padded to it.

    Attributes:
        width: Columns.
        group: Columns of a group.
        tile: Columns of a tile.
        tiles: Tiles in a row.
        padded: Columns with the last tile made whole.
    """

    width: int
    group: int
    tile: int
    tiles: int
    padded: int

    @staticmethod
    @cache
    def of(width: int) -> _Span:
        group, tiles = min(width, GROUP), num_tiles(width)
        tile = min(-(-width // group) * group, TILE)
        return _Span(width, group, tile, tiles, tiles * tile)

    def load(self, rows: RowTable, which: Ints, buffer: Tensor) -> Tensor:
        """Loads rows into the buffer, [n, tiles, tile]."""
        return load(rows, which, 0, self.padded, out=buffer[: len(which)]).view(len(which), self.tiles, self.tile)


def _raw_sum(below: Tensor) -> NDArray[np.float32]:
    """[n, tiles]: sums of exp(x - maximum), at temperature 1.

    Args:
        below: [n, tiles, tile] float32, x - maximum; left as it is, so a quarter of a chunk is copied at a time.
    """
    parts = torch.split(below.view(-1, below.shape[2]), max(1, rows_at_once(below.shape[2]) // 4))
    return torch.cat([exp2_(part * _RAW).sum(-1) for part in parts]).view(below.shape[:2]).numpy()


def _put(into: NDArray[np.float32], row: Ints, values: NDArray[np.float32], fill: float) -> None:
    """Writes lines of ``into``, which are as wide as the table's widest row needs."""
    width = values.shape[1]
    if width == into.shape[1]:
        into[row] = values
    else:
        into[row, :width] = values
        into[row, width:] = fill


def stats(rows: RowTable, temperature: Tensor, *, raw: bool) -> RowStats:
    """Statistics of every row.

    Args:
        rows: R rows.
        temperature: [R] float64; 0 counts as 1.
        raw: Whether sums at temperature 1 are wanted too.
    """
    return LazyRowStats(rows, temperature, raw=raw).take(np.arange(len(rows)))


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
    below = (tile_max.astype(np.float64) - floor[:, None]) / temperature[:, None]
    masses: Floats = tile_sum.astype(np.float64) * np.where(below < _EMPTY_TILE, 0.0, np.exp(below))
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
    # A bad row gives NaN, which no comparison passes; a wrong log-sum-exp may give inf.
    with np.errstate(over="ignore", invalid="ignore"):
        return np.exp((logit - totals.maximum) / rows.temperature[which]) / totals.total
