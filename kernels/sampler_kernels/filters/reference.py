"""Min-p, top-k and top-p as one cut a row, without sorting a large row.

Every filter keeps a head of the order (value descending, id ascending), so a stack of them keeps the shortest head:
the cut is its last element. Values before temperature decide; ids are looked at only among equals of the last value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sampler_kernels.elements import Floats, Ints, chunks, inverse_temperature, load, load_groups, mass_, members
from sampler_kernels.layout import GROUP, TILE
from sampler_kernels.processing import RowFilters
from sampler_kernels.rows import RowTable

Logits = NDArray[np.float32]

EDGE = 1e-5
"""How far the thresholds of min-p (in logarithms) and top-p are moved off natural ties."""

_ANY_ID = np.iinfo(np.int32).max

_FIRST_GROUPS = 32
"""Groups in which top-p looks first. The head of a language model's row seldom reaches beyond its 32 best groups."""

_LIST_SHARE = 4
"""A row is read whole when more than one group in so many has to be read."""

_NARROWED_FROM = 64 * GROUP
"""A list at least this long is narrowed by a sample before it is sorted."""


@dataclass(frozen=True, eq=False)
class Unfiltered:
    """What is known of n rows that are to be cut.

    Attributes:
        rows: The table, without its cut.
        which: [n] row numbers.
        maximum: [n] float32, largest element; finite.
        total: [n], mass of the row relative to it.
        group_max: [n, groups].
        temperature: [n], above 0.
    """

    rows: RowTable
    which: Ints
    maximum: Logits
    total: Floats
    group_max: Logits
    temperature: Floats


def cut(filters: RowFilters, given: Unfiltered) -> None:
    """Finds the cuts of some rows and writes them into ``filters``.

    min-p keeps x - max >= T * (ln min_p - 1e-5); top-k the first k of what that left; top-p, of what those left, every
    element before which lies less than top_p - 1e-5 of their mass, and the first.

    Args:
        filters: Of every row of the table.
        given: Statistics of the rows to cut, each with a filter and none of them bad.
    """
    which = given.which
    log_min_p, top_k, top_p = (t.numpy()[which] for t in (filters.log_min_p, filters.top_k, filters.top_p))
    least = _least_kept(given.maximum, given.temperature * (log_min_p - EDGE))
    if given.rows.max_width <= TILE:
        value, last = _cut_small(given, least, top_k, top_p)
    else:
        inverse = torch.from_numpy(inverse_temperature(given.temperature))
        value, last = least, np.full(len(which), _ANY_ID)
        for n in ((top_k > 0) | (top_p < 1)).nonzero()[0]:
            row = _LargeRow(given, int(n), inverse[n : n + 1])
            value[n], last[n] = row.cut(float(least[n]), int(top_k[n]), float(top_p[n]))
    filters.cut_value.numpy()[which] = value
    filters.cut_id.numpy()[which] = last


def _least_kept(maximum: Logits, limit: Floats) -> Logits:
    """[n]: the smallest float32 x with x - maximum >= limit, the difference taken in float64; -inf where limit is."""
    guess = np.maximum(maximum + limit, np.finfo(np.float32).min).astype(np.float32)
    with np.errstate(over="ignore"):  # the smallest finite number is followed by -inf
        for _ in range(2):
            guess = np.nextafter(guess, np.float32(-math.inf))
    for _ in range(4):
        fails = guess - maximum.astype(np.float64) < limit
        guess = np.where(fails, np.nextafter(guess, np.float32(math.inf)), guess)
    return np.where(np.isinf(limit), np.float32(-math.inf), guess)


def _cut_small(given: Unfiltered, least: Logits, top_k: Ints, top_p: Floats) -> tuple[Logits, Ints]:
    """Rows of at most a tile, sorted whole and together."""
    width = given.rows.max_width
    value, last = np.empty(len(given.which), np.float32), np.full(len(given.which), _ANY_ID)
    inverse = torch.from_numpy(inverse_temperature(given.temperature))
    for at in chunks(np.arange(len(value)), width):
        x = load(given.rows, given.which[at], 0, width).numpy()
        order = -np.sort(-x, axis=1)
        left = ((order >= least[at, None]) & (order > -math.inf)).sum(1)
        left = np.where(top_k[at] > 0, np.minimum(top_k[at], left), left)
        mass = mass_(torch.from_numpy(order.copy()), torch.from_numpy(given.maximum[at])[:, None], inverse[at, None])
        prefix = np.where(np.arange(width) < left[:, None], mass.numpy(), 0).cumsum(1, dtype=np.float64)
        before = prefix[:, :-1] < (top_p[at] - EDGE)[:, None] * prefix[:, -1:]
        kept = np.minimum(1 + (before & (np.arange(1, width) < left[:, None])).sum(1), left)
        kept = np.where(top_p[at] < 1, kept, left)
        value[at] = order[np.arange(len(at)), kept - 1]
        equal = x == value[at, None]
        wanted = kept - (x > value[at, None]).sum(1)
        last[at] = (equal & (equal.cumsum(1) == wanted[:, None])).argmax(1)
    return value, last


class _LargeRow:
    """One row of more than a tile.

    Args:
        given: The rows.
        n: Which of them.
        inverse: [1] float32, its inverse temperature.
    """

    def __init__(self, given: Unfiltered, n: int, inverse: torch.Tensor) -> None:
        self._rows, self._row = given.rows, given.which[n : n + 1]
        self._group_max = given.group_max[n]
        self._maximum = torch.from_numpy(given.maximum[n : n + 1])
        self._inverse = inverse
        self._total = float(given.total[n])

    def cut(self, least: float, top_k: int, top_p: float) -> tuple[float, int]:
        """Value and id of the last element kept.

        Args:
            least: The smallest value that min-p keeps.
            top_k: 0 where off.
            top_p: 1 where off.
        """
        floor = max(least, float(np.finfo(np.float32).min))
        if 0 < top_k <= len(self._group_max):
            # The k-th largest maximum of a group has k elements at or above it.
            floor = max(floor, float(np.partition(self._group_max, -top_k)[-top_k]))
        groups = (self._group_max >= floor).nonzero()[0]
        listed = len(groups) * _LIST_SHARE <= len(self._group_max)
        if not listed and not top_k and least == -math.inf:
            found = self._head_of_best_groups(top_p)
            if found is not None:
                return found
        ids, x = self._list(groups) if listed else self._whole()
        left = np.compress(x >= floor, x)
        if 0 < top_k < len(left):
            left = np.partition(left, -top_k)[-top_k:]
        last = float(left.min())
        if top_p < 1:
            alone = not top_k and least == -math.inf
            total = self._total if alone else float(self._masses(left).sum(dtype=np.float64))
            last, kept = self._head(left, (top_p - EDGE) * total)
        else:
            kept = len(left)
        return self._with_id(ids, x, last, kept)

    def _head_of_best_groups(self, top_p: float) -> tuple[float, int] | None:
        """The cut of top-p alone, if it lies among what is above all but the best groups."""
        next_best = np.partition(self._group_max, -_FIRST_GROUPS - 1)[-_FIRST_GROUPS - 1]
        groups = (self._group_max > next_best).nonzero()[0]
        wanted = (top_p - EDGE) * self._total
        if not len(groups) or GROUP * self._masses(self._group_max[groups]).sum(dtype=np.float64) < wanted:
            return None  # not even groups full of their maxima would reach it
        ids, x = self._list(groups)
        left = np.compress(x > next_best, x)
        if self._masses(left).sum(dtype=np.float64) < wanted:
            return None
        return self._with_id(ids, x, *self._head(left, wanted))

    def _list(self, groups: Ints) -> tuple[Ints | None, Logits]:
        x = load_groups(self._rows, np.repeat(self._row, len(groups)), groups).numpy()
        return members(groups, self._rows.max_width).reshape(-1), x.reshape(-1)

    def _whole(self) -> tuple[Ints | None, Logits]:
        return None, load(self._rows, self._row, 0, self._rows.max_width).numpy()[0]

    def _masses(self, x: Logits) -> Logits:
        return mass_(torch.from_numpy(x.copy()), self._maximum, self._inverse).numpy()

    def _head(self, x: Logits, wanted: float) -> tuple[float, int]:
        """The shortest head of the order that has the mass ``wanted``, and at least one element.

        Args:
            x: The first elements of the order, in any order, of at least that mass.
            wanted: Mass, relative to the row's largest element.

        Returns:
            The last value of the head, and how many elements it has.
        """
        best, middle = self._narrowed(x, wanted)
        before = float(self._masses(best).sum(dtype=np.float64))
        order = np.sort(middle)[::-1]
        kept = _reaching(self._masses(order), wanted - before)
        if len(middle) < len(x) and (kept > len(order) or before >= wanted):  # the sample misled
            best, order = best[:0], np.sort(x)[::-1]
            kept = _reaching(self._masses(order), wanted)
        kept = min(kept, len(order))
        return float(order[kept - 1]), len(best) + kept

    def _narrowed(self, x: Logits, wanted: float) -> tuple[Logits, Logits]:
        """(elements before the place where the mass is reached, elements around it), by a sample of the list."""
        if len(x) < _NARROWED_FROM:
            return x[:0], x
        step = len(x) // (_NARROWED_FROM // 4)
        sample = np.sort(x[::step])[::-1]
        rank = _reaching(self._masses(sample), wanted / step)
        # A rank estimated from r of the sample's elements is off by the root of r or so.
        spread = 4 * (math.isqrt(rank) + 2)
        high, low = max(0, (rank - spread) * step), min(len(x), (rank + spread) * step)
        part = np.partition(x, len(x) - low)[len(x) - low :] if low < len(x) else x
        part = np.partition(part, low - 1 - high)  # one place at a time: numpy is quick with one only
        return part[low - high :], part[: low - high]

    @staticmethod
    def _with_id(ids: Ints | None, x: Logits, last: float, kept: int) -> tuple[float, int]:
        """The cut behind ``kept`` elements, the last of value ``last``; ``x`` has all of that value, ids ascending."""
        wanted = kept - np.count_nonzero(x > last)
        place = int(np.flatnonzero(x == last)[wanted - 1])
        return last, place if ids is None else int(ids[place])


def _reaching(masses: Logits, wanted: float) -> int:
    """How many leading masses it takes, at least one, for their sum to be ``wanted``; one more than all if it never is.

    Summed by runs first: a running sum is the slowest thing that a CPU can do to a list.
    """
    runs = len(masses) // GROUP
    prefix = masses[: runs * GROUP].reshape(runs, GROUP).sum(1, dtype=np.float64).cumsum()
    run = int(np.searchsorted(prefix, wanted))
    rest = masses[run * GROUP : (run + 1) * GROUP].cumsum(dtype=np.float64)
    return run * GROUP + int(np.searchsorted(rest, wanted - (prefix[run - 1] if run else 0.0))) + 1
