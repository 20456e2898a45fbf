"""Sums whose bits depend on their terms alone, and what they are used for: joining the tiles of a row.

The order in which a compiler adds up a block depends on how it spread the block over threads, and that depends on
how the block was loaded. A row would then have one sum where it is aligned and another where it is not. Adding
neighbours in pairs, level by level, leaves no choice of order; and zeros at the end change nothing, so that a wider
neighbour in the batch does not either.
"""

import triton
import triton.language as tl


@triton.jit
def pair_sum(values, SIZE: tl.constexpr):
    """Sum of a block [SIZE], SIZE a power of two."""
    return tl.sum(pair_sum_rows(tl.reshape(values, [1, SIZE]), 1, SIZE), axis=0)


@triton.jit
def pair_sum_rows(values, ROWS: tl.constexpr, SIZE: tl.constexpr):
    """[ROWS]: sum of each row of a block [ROWS, SIZE], both powers of two."""
    if SIZE == 1:
        sums = tl.reshape(values, [ROWS])
    else:
        pairs = tl.sum(tl.reshape(values, [ROWS, SIZE // 2, 2]), axis=2)
        sums = pair_sum_rows(pairs, ROWS, SIZE // 2)
    return sums


@triton.jit
def effective(temperature):
    """0, which asks for the argmax, still has a distribution to report: that at temperature 1."""
    return tl.where(temperature == 0, 1.0, temperature)


@triton.jit
def exponent_scale(temperature):
    """float32 c with exp((x - max) / T) = 2^((x - max) * c).

    At least 2^-149, the smallest float32: at a temperature so high, c = 0 would make NaN of -inf * 0, and with a normal
    number 3e38 would count at every temperature.
    """
    log2_e = 1.4426950408889634
    return tl.maximum(log2_e / effective(temperature), 1.401298464324817e-45).to(tl.float32)


@triton.jit
def join_tiles(tile_max, tile_sum, temperature):
    """What whole rows come to.

    Args:
        tile_max: [ROWS, TILES] float32, -inf past the last tile, NaN where the tile holds NaN or +inf.
        tile_sum: [ROWS, TILES] float32.
        temperature: float64, of all of them; 0 counts as 1.

    Returns:
        maximum [ROWS] float32, finite also where the row is bad;
        masses [ROWS, TILES] float64, of the tiles, relative to the maximum;
        bad [ROWS] bool: NaN, +inf, or nothing above -inf.
    """
    # tl.max passes over NaN, so NaN is looked for by itself.
    is_nan = tile_max != tile_max  # noqa: PLR0124
    spoilt = tl.max(is_nan.to(tl.int32), axis=1) > 0
    maximum = tl.max(tl.where(is_nan, -float("inf"), tile_max), axis=1)
    bad = spoilt | (maximum == -float("inf"))
    maximum = tl.where(bad, 0.0, maximum)
    below = (tile_max.to(tl.float64) - maximum.to(tl.float64)[:, None]) / effective(temperature)
    masses = tl.where(tile_max > -float("inf"), tile_sum.to(tl.float64) * tl.exp(below), 0.0)
    return maximum, masses, bad
