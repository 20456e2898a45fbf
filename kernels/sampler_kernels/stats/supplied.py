"""Rows whose log-sum-exp the caller knows: single logits are gathered, and only rows that are drawn from are read."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.elements import Floats, Ints, load_at
from sampler_kernels.rows import RowTable
from sampler_kernels.stats.reference import LazyRowStats, RowTotals, combine

TOLERANCE: Final = 1e-3
"""A row that is read may disagree with its supplied log-sum-exp by so much."""


def lazy_stats(rows: RowTable, temperature: Tensor, *, raw: bool) -> LazyRowStats:
    """Statistics of a table's rows, of the kind that fits what came with them. Arguments as of ``LazyRowStats``."""
    return (LazyRowStats if rows.supplied is None else SuppliedRowStats)(rows, temperature, raw=raw)


class SuppliedRowStats(LazyRowStats):
    """Statistics that take the caller's word for the log-sum-exp of some rows, until a row is read.

    A row's probabilities are exp(x / T - supplied) even then, so that an accept test and the residual it leads to speak
    of the same distribution.

    Args:
        rows: R rows with ``supplied``.
        temperature: [R] float64.
        raw: Whether sums at temperature 1 are wanted of the rows that are read.
    """

    supplied = True

    def __init__(self, rows: RowTable, temperature: Tensor, *, raw: bool) -> None:
        super().__init__(rows, temperature, raw=raw)
        assert rows.supplied is not None, "nothing was supplied with these rows"
        self._given = rows.supplied.given.numpy()
        self._log_sum_exp = rows.supplied.log_sum_exp.numpy()
        self._reported = None if rows.supplied.reported_ids is None else rows.supplied.reported_ids.numpy()

    def totals(self, which: Ints) -> RowTotals:
        """Of some rows; the maximum of a row that was not read stands near its log-sum-exp, and its tiles are empty."""
        given = self._given[which]
        if not given.any():
            return super().totals(which)
        self._compute(which[~given])
        read = self._known[which]
        temperature, supplied = self.temperature[which], self._log_sum_exp[which]
        tile_max, tile_sum = self._tile_max[which], self._tile_sum[which]
        tile_max[~read], tile_sum[~read] = 0, 0
        known = combine(tile_max, tile_sum, temperature)
        with np.errstate(over="ignore", invalid="ignore"):  # a number that is no log-sum-exp is found below
            near = (supplied * temperature).astype(np.float32)
            maximum = np.where(read, known.maximum, near)
            total = np.where(given, np.exp(supplied - maximum / temperature), known.total)
        bad = (read & known.bad) | (given & ~np.isfinite(supplied))
        return RowTotals(maximum, total, known.tile_masses, bad)

    def log_sum_exp(self, which: Ints, *, raw: bool) -> Floats:
        """Of some rows, as supplied. One supplied at another temperature than 1 is not a raw one, nor asked for."""
        out = self._log_sum_exp[which]
        own = ~self._given[which]
        if own.any():
            out[own] = super().log_sum_exp(which[own], raw=raw)
        return out

    def unreadable(self, which: Ints, columns: Ints) -> NDArray[np.bool_]:
        """[n], whether a logit that is gathered from a row without reading it is NaN or +inf.

        Args:
            which: [n] row numbers.
            columns: [n], what is gathered to decide; those that are gathered to be reported are looked at too.
        """
        wanted = columns[:, None]
        if self._reported is not None:
            wanted = np.concatenate([wanted, self._reported[which]], axis=1)
        logits = load_at(self.rows, which, wanted).numpy()
        bad: NDArray[np.bool_] = (np.isnan(logits) | (logits == np.inf)).any(1)
        return bad & self._given[which]

    def contradicts(self, which: Ints) -> NDArray[np.bool_]:
        """[n], whether a row, which is read now, is bad or has another log-sum-exp than was supplied."""
        self._compute(which)
        given = self._given[which]
        totals = combine(self._tile_max[which], self._tile_sum[which], self.temperature[which])
        with np.errstate(divide="ignore", invalid="ignore"):
            found = totals.maximum / self.temperature[which] + np.log(totals.total)
            agrees = np.abs(found - self._log_sum_exp[which]) <= TOLERANCE
        return given & (totals.bad | ~agrees)
