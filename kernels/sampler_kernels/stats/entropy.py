"""Entropies of rows, in one more pass over what is left of them."""

from __future__ import annotations

import math

import numpy as np
import torch

from sampler_kernels.elements import CHUNK_ELEMENTS, Floats, Ints, below_, chunks, exp2_, inverse_temperature, load
from sampler_kernels.layout import TILE, num_tiles
from sampler_kernels.stats.reference import LazyRowStats, RowTotals

_SPAN_TILES = max(1, CHUNK_ELEMENTS // 2 // TILE)
"""Tiles of a row held at once: half a chunk for exponents, and as much for masses."""

_NO_MASS = -150.0
"""2 to this power is 0 in float32. It stands in for -inf, since -inf times 0 would be NaN."""


def entropy(rows: LazyRowStats, which: Ints, totals: RowTotals) -> Floats:
    """[n]: -sum of p ln p, in nats, over the processed row.

    With z = (x - max) / T and Z the sum of exp(z) this is ln Z - sum of z exp(z) / Z. Within a tile z exp(z) is summed
    in float32, across tiles in float64.

    Args:
        rows: The table and its temperatures.
        which: [n] row numbers, none of them bad.
        totals: Of those rows.
    """
    width = rows.rows.max_width
    tiles = num_tiles(width)
    sums = np.empty((len(which), tiles))
    maximum = torch.from_numpy(totals.maximum)[:, None]
    inverse = torch.from_numpy(inverse_temperature(rows.temperature[which]))[:, None]
    for at in chunks(np.arange(len(which)), width):
        for first in range(0, tiles, _SPAN_TILES):
            last = min(first + _SPAN_TILES, tiles)
            # Whole tiles, past the row's end too, unless the row is shorter than one.
            stop = last * TILE if width > TILE else width
            exponent = below_(load(rows.rows, which[at], first * TILE, stop), maximum[at]).mul_(inverse[at])
            exponent.clamp_(min=_NO_MASS)
            weighted = exp2_(exponent.clone()).mul_(exponent)
            sums[at, first:last] = weighted.view(len(at), last - first, -1).sum(-1).numpy()
    return np.log(totals.total) - math.log(2) * sums.cumsum(1)[:, -1] / totals.total
