"""What accept tests ask of single tokens: their probabilities, and the argmax of their rows."""

import triton
import triton.language as tl

from sampler_kernels.device.elements import load_at
from sampler_kernels.device.maps import draft_column
from sampler_kernels.device.sums import effective, join_tiles, pair_sum_rows
from sampler_kernels.device.view import process_each
from sampler_kernels.layout import MAX_DRAFT_TOKENS

_MOST_DRAFTS = tl.constexpr(MAX_DRAFT_TOKENS)


@triton.jit
def any_illegal(first_draft, drafts, draft_token_ids_ptr):
    """Whether a draft id of the request is marked as outside its range, before or after a rejection."""
    j = tl.arange(0, _MOST_DRAFTS)
    token = tl.load(draft_token_ids_ptr + first_draft + j, mask=j < drafts, other=-1)
    return tl.min(token, axis=0) < -1


@triton.jit
def probability(
    row,
    column,
    read,
    temperature,
    address_ptr,
    tile_max_ptr,
    tile_sum_ptr,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    tiles,
    DTYPE: tl.constexpr,
    VIEW: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
):
    """Probabilities of one column of each of ROWS rows. In float64 throughout: they decide about one token.

    Returns:
        [ROWS] float64 probability, 0 for column -1; [ROWS] bool, whether the row is bad; [ROWS, TILES] float32 tile
        maxima; [ROWS] float32 maximum.
    """
    tile = tl.arange(0, TILES)
    inside = read[:, None] & (tile < tiles)[None, :]
    place = row[:, None] * tiles + tile[None, :]
    address = tl.load(address_ptr + row, mask=read, other=0)
    known = read & (column >= 0)
    logit = load_at(address, column, known, DTYPE)
    logit = process_each(logit, column, known, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW)
    tile_max = tl.load(tile_max_ptr + place, mask=inside, other=-float("inf"))
    tile_sum = tl.load(tile_sum_ptr + place, mask=inside, other=0.0)
    maximum, masses, bad = join_tiles(tile_max, tile_sum, temperature)
    below = (logit.to(tl.float64) - maximum.to(tl.float64)) / effective(temperature)
    total = tl.where(bad, 1.0, pair_sum_rows(masses, ROWS, TILES))
    return tl.exp(below) / total, bad, tile_max, maximum


@triton.jit
def draft_probability(
    token,
    place,
    read,
    temperature,
    draft_row_ptr,
    draft_map_ptr,
    maps_ptr,
    address_ptr,
    width_ptr,
    tile_max_ptr,
    tile_sum_ptr,
    vocab_size,
    tiles,
    DTYPE: tl.constexpr,
    HAS_MAPS: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
):
    """Probabilities that ROWS draft tokens were drawn with.

    token: [ROWS] int32. place: [ROWS] int32, their draft positions. read: [ROWS] bool, where a draft row may be read.

    Returns:
        [ROWS] float64, 1 for a point mass; [ROWS] bool, whether a draft row is read there and is bad.
    """
    draft_row = tl.load(draft_row_ptr + place, mask=read, other=-1)
    read = draft_row >= 0
    which = tl.load(draft_map_ptr + place, mask=read, other=-1)
    column = draft_column(token, which, read, maps_ptr, vocab_size, HAS_MAPS)
    width = tl.load(width_ptr + draft_row, mask=read, other=0)
    q, bad, _, _ = probability(
        draft_row,
        tl.where(column < width, column, -1),
        read,
        temperature,
        address_ptr,
        tile_max_ptr,
        tile_sum_ptr,
        address_ptr,
        address_ptr,
        address_ptr,
        tiles,
        DTYPE,
        0,
        ROWS,
        TILES,
    )
    return tl.where(read, q, 1.0), read & bad


@triton.jit
def argmax_of(row, needed, tile_max, maximum, tile_argmax_ptr, tiles, TILES: tl.constexpr):
    """[ROWS] int32: the lowest id that reaches the maximum of each row; not loaded where not ``needed``."""
    tile = tl.arange(0, TILES)
    peaks = needed[:, None] & (tile_max == maximum[:, None]) & (tile < tiles)[None, :]
    place = row[:, None] * tiles + tile[None, :]
    return tl.min(tl.load(tile_argmax_ptr + place, mask=peaks, other=2147483647), axis=1)
