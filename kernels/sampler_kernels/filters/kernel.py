"""Min-p, top-k and top-p as one cut a row, by a search over values: nothing is sorted, few elements are looked at.

What a filter keeps is a head of the order, so that its last value is found by asking how many elements, or how much
mass, reach a value. Eight values are asked about in one pass, and the bracket between them shrinks ninefold: a row of
16-bit logits is cut in at most six passes. Groups whose maximum lies below the bracket are never read.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sampler_kernels.device.compile import TRITON_DTYPES, kernel, power_of_two
from sampler_kernels.device.elements import GROUP, GROUPS, load_tile, pointer_to, tile_columns
from sampler_kernels.device.order import ascending_key, value_of_ascending
from sampler_kernels.device.sums import effective, exponent_scale, join_tiles, pair_sum, pair_sum_rows
from sampler_kernels.device.view import CUT, EDITS, behind_cut, process, process_tile, view_of
from sampler_kernels.filters.reference import EDGE
from sampler_kernels.outcome import RowStats
from sampler_kernels.processing import RowFilters
from sampler_kernels.rows import RowTable

_CUT_WARPS = 8
_SUM_WARPS = 4

_EDGE = tl.constexpr(EDGE)
_ANY_ID = tl.constexpr(2**31 - 1)
_ASKED = tl.constexpr(8)
"""Values asked about in one pass."""
_GROUPS_AT_ONCE = tl.constexpr(8)
_ELEMENTS = tl.constexpr(8 * GROUP.value)
"""Elements in registers at once: with their sums for each value asked about, 32 numbers a thread of each kind."""


@triton.jit
def _least_kept(maximum, limit):
    """The smallest float32 x with x - maximum >= limit, the difference taken in float64; -inf where ``limit`` is."""
    guess = tl.maximum(maximum.to(tl.float64) + limit, -3.4028234663852886e38).to(tl.float32)
    key = ascending_key(guess) - 2
    for _ in tl.static_range(4):
        fails = value_of_ascending(key, tl.float32).to(tl.float64) - maximum.to(tl.float64) < limit
        key = tl.where(fails, key + 1, key)
    return tl.where(limit == -float("inf"), -float("inf"), value_of_ascending(key, tl.float32))


@triton.jit
def _first_key_from(least, KEY: tl.constexpr):
    """The smallest key above that of -inf, int32, whose value is at least ``least``."""
    key = ascending_key(least.to(KEY))
    key = tl.where(value_of_ascending(key, KEY) < least, key + 1, key)
    key = tl.where(value_of_ascending(key - 1, KEY) >= least, key - 1, key)
    return tl.maximum(key, ascending_key(tl.minimum(least, -float("inf")).to(KEY)) + 1)


@triton.jit
def _reached_by_maxima(keys, weights, wanted, low, high):
    """The largest key that group maxima of a weight of ``wanted`` reach; ``low`` where all of them are too few.

    Each maximum is an element, so as many elements reach it, and as much mass: the cut lies no lower.

    keys: [GROUPS_PADDED] int32. weights: [GROUPS_PADDED] float64. wanted: float64. low, high: int64; the answer is from
    ``low`` on and below ``high``.
    """
    while high - low > 1:
        middle = (low + high) >> 1
        enough = tl.sum(tl.where(keys >= middle.to(tl.int32), weights, 0.0), axis=0) >= wanted
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    return low


@triton.jit
def _elements(
    address,
    row,
    list_ptr,
    start,
    listed,
    view_ptr,
    vocab_size,
    DTYPE: tl.constexpr,
    VIEW: tl.constexpr,
):
    """[_ELEMENTS] float32, of a few of the listed groups, -inf past their end; and their columns, int32."""
    at = start + tl.arange(0, _GROUPS_AT_ONCE)
    group = tl.load(list_ptr + at, mask=at < listed, other=0)
    columns = tl.reshape(group[:, None] * GROUP + tl.arange(0, GROUP)[None, :], [_ELEMENTS])
    taken = tl.broadcast_to((at < listed)[:, None], [_GROUPS_AT_ONCE, GROUP])
    inside = tl.reshape(taken, [_ELEMENTS]) & (columns < vocab_size)
    x = tl.load(pointer_to(address, DTYPE) + columns, mask=inside, other=-float("inf")).to(tl.float32)
    return process(x, columns, inside, row, view_ptr, view_ptr, view_ptr, VIEW), columns


@triton.jit
def _ask(
    address,
    row,
    list_ptr,
    listed,
    asked,
    maximum,
    scale,
    view_ptr,
    vocab_size,
    DTYPE: tl.constexpr,
    KEY: tl.constexpr,
    VIEW: tl.constexpr,
):
    """How many elements reach each of the ``asked`` keys, [_ASKED] int32, and their mass; both [_ASKED] float64.

    Each of _ELEMENTS places adds up every so many elements in float32, at most 200 of a vocabulary of 200,000.
    """
    counts = tl.zeros([_ELEMENTS, _ASKED], tl.int32)
    masses = tl.zeros([_ELEMENTS, _ASKED], tl.float32)
    for start in range(0, listed, _GROUPS_AT_ONCE):
        x, _ = _elements(address, row, list_ptr, start, listed, view_ptr, vocab_size, DTYPE, VIEW)
        reaches = ascending_key(x.to(KEY))[:, None] >= asked[None, :]
        counts += reaches.to(tl.int32)
        masses += tl.where(reaches, tl.exp2((x - maximum) * scale)[:, None], 0.0)
    return tl.sum(counts, axis=0).to(tl.float64), tl.sum(masses.to(tl.float64), axis=0)


@triton.jit
def _search(
    address,
    row,
    list_ptr,
    listed,
    by_count,
    wanted,
    low,
    high,
    maximum,
    scale,
    view_ptr,
    vocab_size,
    DTYPE: tl.constexpr,
    KEY: tl.constexpr,
    VIEW: tl.constexpr,
):
    """The largest key from ``low`` on that as many elements reach, or as much mass, as is ``wanted``.

    Returns:
        The key, int64, ``low`` where nothing is enough; how many elements reach it, and how many exceed it; the mass of
        those that exceed it; float64.
    """
    each = tl.arange(0, _ASKED)
    while high - low > 1:
        asked = low + ((high - low) * (each + 1)) // (_ASKED + 1)
        counts, masses = _ask(
            address,
            row,
            list_ptr,
            listed,
            asked.to(tl.int32),
            maximum,
            scale,
            view_ptr,
            vocab_size,
            DTYPE,
            KEY,
            VIEW,
        )
        enough = tl.where(by_count, counts, masses) >= wanted
        low = tl.maximum(low, tl.max(tl.where(enough, asked, low), axis=0))
        high = tl.minimum(high, tl.min(tl.where((enough == 0) & (asked > low), asked, high), axis=0))
    counts, masses = _ask(
        address,
        row,
        list_ptr,
        listed,
        (low + each).to(tl.int32),
        maximum,
        scale,
        view_ptr,
        vocab_size,
        DTYPE,
        KEY,
        VIEW,
    )
    reach = tl.sum(tl.where(each == 0, counts, 0.0), axis=0)
    exceed = tl.sum(tl.where(each == 1, counts, 0.0), axis=0)
    mass = tl.sum(tl.where(each == 1, masses, 0.0), axis=0)
    return low, reach, exceed, mass


@triton.jit
def _id_of_equal(
    address,
    row,
    list_ptr,
    listed,
    key,
    number,
    view_ptr,
    vocab_size,
    DTYPE: tl.constexpr,
    KEY: tl.constexpr,
    VIEW: tl.constexpr,
):
    """The id of the ``number``-th element, from 1, that has a key; groups are listed in ascending order."""
    found = number * 0 + _ANY_ID
    before = number * 0
    start = number * 0
    while (start < listed) & (before < number):
        x, columns = _elements(address, row, list_ptr, start, listed, view_ptr, vocab_size, DTYPE, VIEW)
        equal = (ascending_key(x.to(KEY)) == key).to(tl.int32)
        nth = (equal > 0) & (before + tl.cumsum(equal, axis=0) == number)
        found = tl.minimum(found, tl.min(tl.where(nth, columns, _ANY_ID), axis=0))
        before += tl.sum(equal, axis=0)
        start += _GROUPS_AT_ONCE
    return found


@kernel
def _cut_kernel(
    address_ptr,
    temperature_ptr,
    log_min_p_ptr,
    top_k_ptr,
    top_p_ptr,
    tile_max_ptr,
    tile_sum_ptr,
    group_max_ptr,
    view_ptr,
    list_ptr,
    cut_value_ptr,
    cut_id_ptr,
    vocab_size,
    tiles,
    groups,
    DTYPE: tl.constexpr,
    KEY: tl.constexpr,
    VIEW: tl.constexpr,
    TILES: tl.constexpr,
    GROUPS_PADDED: tl.constexpr,
):
    """The cut of one row.

    In: address_ptr [R] int64; temperature_ptr, log_min_p_ptr, top_p_ptr [R] float64, top_k_ptr [R] int64; tile_max_ptr,
    tile_sum_ptr [R, tiles] and group_max_ptr [R, groups] float32, before the cut; view_ptr as for ``process``.
    Scratch: list_ptr [R, groups] int32. Out: cut_value_ptr [R] float32 and cut_id_ptr [R] int32, of rows that have a
    filter and are not bad.

    The grid walks rows. A search is a chain of questions, so a row is one program's; other rows hide its latency.
    """
    row = tl.program_id(0)
    log_min_p = tl.load(log_min_p_ptr + row)
    top_k = tl.load(top_k_ptr + row)
    top_p = tl.load(top_p_ptr + row)
    has_min_p = log_min_p > -float("inf")
    if (has_min_p == 0) & (top_k == 0) & (top_p >= 1.0):
        return
    tile = tl.arange(0, TILES)[None, :]
    temperature = tl.load(temperature_ptr + row)
    tile_max = tl.load(tile_max_ptr + row * tiles + tile, mask=tile < tiles, other=-float("inf"))
    tile_sum = tl.load(tile_sum_ptr + row * tiles + tile, mask=tile < tiles, other=0.0)
    maxima, tile_masses, is_bad = join_tiles(tile_max, tile_sum, temperature)
    if tl.max(is_bad.to(tl.int32), axis=0) > 0:
        return
    maximum = tl.max(maxima, axis=0)
    total = tl.sum(pair_sum_rows(tile_masses, 1, TILES), axis=0)
    address = tl.load(address_ptr + row)
    scale = exponent_scale(temperature)
    list_ptr += row.to(tl.int64) * groups

    # Where the cut can lie at all: from what min-p keeps on, and no lower than the maxima of groups say.
    low = _first_key_from(_least_kept(maximum, effective(temperature) * (log_min_p - _EDGE)), KEY).to(tl.int64)
    high = ascending_key(maximum.to(KEY)).to(tl.int64) + 1
    group = tl.arange(0, GROUPS_PADDED)
    inside = group < groups
    group_max = tl.load(group_max_ptr + row.to(tl.int64) * groups + group, mask=inside, other=-float("inf"))
    keys = ascending_key(group_max.to(KEY))
    floor = low
    if top_k > 0:
        floor = _reached_by_maxima(keys, inside.to(tl.float64), top_k.to(tl.float64), low, high)
    elif has_min_p == 0:
        weights = tl.exp2((group_max - maximum) * scale).to(tl.float64)
        wanted_mass = tl.maximum((top_p - _EDGE) * total, 1e-300)
        floor = _reached_by_maxima(keys, tl.where(inside, weights, 0.0), wanted_mass, low, high)
    reaches = (inside & (keys >= floor.to(tl.int32))).to(tl.int32)
    tl.store(list_ptr + tl.cumsum(reaches, axis=0) - 1, group, mask=reaches > 0)
    tl.debug_barrier()  # what one thread of the program stored, another loads
    listed = tl.sum(reaches, axis=0)

    key = floor
    kept = total * 0.0 + vocab_size.to(tl.float64)  # of the elements of the last value
    left_mass = total
    if (top_k > 0) | has_min_p:
        # The last of the first k of what min-p keeps; without top-k all of that, which is asked for more than there is.
        wanted = tl.where(top_k > 0, top_k, vocab_size.to(tl.int64) + 1).to(tl.float64)
        start = tl.where(top_k > 0, high, low + 1)
        key, reach, exceed, mass = _search(
            address,
            row,
            list_ptr,
            listed,
            top_k > 0,
            wanted,
            floor,
            start,
            maximum,
            scale,
            view_ptr,
            vocab_size,
            DTYPE,
            KEY,
            VIEW,
        )
        kept = tl.minimum(wanted, reach) - exceed
        value = value_of_ascending(key.to(tl.int32), KEY)
        left_mass = mass + kept * tl.exp2((value - maximum) * scale).to(tl.float64)
    equal = kept
    if top_p < 1.0:
        wanted = tl.maximum((top_p - _EDGE) * left_mass, 1e-300)
        head, reach, exceed, mass = _search(
            address,
            row,
            list_ptr,
            listed,
            False,
            wanted,
            key,
            high,
            maximum,
            scale,
            view_ptr,
            vocab_size,
            DTYPE,
            KEY,
            VIEW,
        )
        value = value_of_ascending(head.to(tl.int32), KEY)
        unit = tl.exp2((value - maximum) * scale).to(tl.float64)
        most = tl.where(head == key, tl.minimum(kept, reach - exceed), reach - exceed)
        wanted_equal = tl.ceil((wanted - mass) / tl.where(unit > 0.0, unit, 1.0))
        kept = tl.minimum(tl.maximum(wanted_equal, 1.0), most)
        key = head
        equal = reach - exceed
    else:
        # Without top-p what was kept of the last value is all that decides; ties end where k does.
        equal = kept + tl.where(top_k > 0, 1.0, 0.0)
    last = row * 0 + _ANY_ID
    if kept < equal:
        last = _id_of_equal(
            address,
            row,
            list_ptr,
            listed,
            key.to(tl.int32),
            kept.to(tl.int32),
            view_ptr,
            vocab_size,
            DTYPE,
            KEY,
            VIEW,
        )
    tl.store(cut_value_ptr + row, value_of_ascending(key.to(tl.int32), KEY))
    tl.store(cut_id_ptr + row, last)


@kernel
def _kept_sums_kernel(
    address_ptr,
    temperature_ptr,
    log_min_p_ptr,
    top_k_ptr,
    top_p_ptr,
    tile_max_ptr,
    tile_sum_ptr,
    group_max_ptr,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    vocab_size,
    tiles,
    groups,
    DTYPE: tl.constexpr,
    VIEW: tl.constexpr,
):
    """The sum of one tile again, of what the cut left of it.

    In: as the kernel of the cuts, with what it found. Out: tile_sum_ptr [R, tiles] float32, of rows that have a filter.
    The grid is one axis over (row, tile), tile fastest, as that of the statistics; of a tile only groups whose maximum
    reaches the cut are read.
    """
    row = tl.program_id(0) // tiles
    tile = tl.program_id(0) % tiles
    has_min_p = tl.load(log_min_p_ptr + row) > -float("inf")
    if (has_min_p == 0) & (tl.load(top_k_ptr + row) == 0) & (tl.load(top_p_ptr + row) >= 1.0):
        return
    place = row * tiles + tile
    tile_max = tl.load(tile_max_ptr + place)
    value = tl.load(cut_value_ptr + row)
    kept = value * 0.0
    if tile_max >= value:
        group = tile * GROUPS + tl.arange(0, GROUPS)
        maxima = tl.load(group_max_ptr + row.to(tl.int64) * groups + group, mask=group < groups, other=-float("inf"))
        x = load_tile(tl.load(address_ptr + row), vocab_size, tile, (maxima >= value)[:, None], DTYPE)
        x = process_tile(x, vocab_size, tile, row, view_ptr, view_ptr, view_ptr, VIEW)
        x = behind_cut(x, tile_columns(tile), value, tl.load(cut_id_ptr + row))
        masses = tl.exp2((x - tile_max) * exponent_scale(tl.load(temperature_ptr + row)))
        kept = pair_sum(pair_sum_rows(masses, GROUPS, GROUP), GROUPS)
    tl.store(tile_sum_ptr + place, kept)


def cut(rows: RowTable, filters: RowFilters, stats: RowStats, temperature: Tensor) -> None:
    """Cuts filtered rows, and sums again what is left of them.

    Args:
        rows: R rows, with what processes them.
        filters: Of these rows; ``cut_value`` and ``cut_id`` are written to where a row has a filter and is not bad.
        stats: Of the rows before filters; the sums of filtered rows are replaced.
        temperature: [R] float64, above 0 where there is a filter.
    """
    count, device = len(rows), temperature.device
    view = view_of(rows, device)
    tiles, groups = stats.tile_max.shape[1], stats.group_max.shape[1]
    key = torch.float32 if view.flags & EDITS else rows.dtype  # an edited element may be any float32
    address = rows.pointers(device).address
    asked = (filters.log_min_p, filters.top_k, filters.top_p)
    known = (stats.tile_max, stats.tile_sum, stats.group_max)
    sizes = (rows.max_width, tiles, groups)
    variant = {"DTYPE": TRITON_DTYPES[rows.dtype], "VIEW": view.flags & ~CUT}
    _cut_kernel[(count,)](
        address,
        temperature,
        *asked,
        *known,
        view.table,
        torch.empty((count, groups), dtype=torch.int32, device=device),
        filters.cut_value,
        filters.cut_id,
        *sizes,
        **variant,
        KEY=TRITON_DTYPES[key],
        TILES=power_of_two(tiles),
        GROUPS_PADDED=power_of_two(groups),
        num_warps=_CUT_WARPS,
    )
    _kept_sums_kernel[(count * tiles,)](
        address,
        temperature,
        *asked,
        *known,
        view.table,
        filters.cut_value,
        filters.cut_id,
        *sizes,
        **variant,
        num_warps=_SUM_WARPS,
    )
