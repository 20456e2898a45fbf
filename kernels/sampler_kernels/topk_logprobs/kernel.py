"""What logprobs are made from, without a sort of the row: the maxima of groups say where its largest entries are."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.device.compile import TRITON_DTYPES, kernel, placeholder, power_of_two
from sampler_kernels.device.elements import GROUP, GROUPS, TILE, load_at, load_tile, pointer_to
from sampler_kernels.device.order import order_key, place_of_key, value_of_key
from sampler_kernels.device.sums import effective, join_tiles, pair_sum_rows
from sampler_kernels.device.view import EDITS, process, process_tile, view_of
from sampler_kernels.outcome import RowStats, TopLogits

_WARPS = 4
_MAX_REGISTERS = 128
"""A thread's, so that four programs share a multiprocessor: the parts that rank read memory and need the company, the
parts that sort would take 200."""
_TOP_BUCKETS = (8, 32, 128, 256)
"""Sizes that the largest entries are looked for in: few, since each is compiled, and powers of two."""
_FEWEST_SLOTS = 128
"""Room for the entries that may be among the largest, or twice as many as are wanted if that is more: four warps sort
128 keys about as fast as 32."""
_FEW_ROWS = 64
"""Up to this many rows a program ranks within one tile, for there are too few programs to fill the device; above, in
eight of them, so that programs which find nothing to do do not outnumber the others."""
_MANY_TILES = 8

_CHOSEN = tl.constexpr(32)
"""Chosen ids looked up at once."""
_CHUNK = tl.constexpr(32)
"""Groups whose members are in registers at once: 4,096 keys, 32 a thread."""


@triton.jit
def _first_groups(group_max_ptr, row, groups, DTYPE: tl.constexpr, GROUPS_PADDED: tl.constexpr, TOP: tl.constexpr):
    """The TOP groups that come first by maximum descending, then index ascending.

    The n first groups hold the n first elements: a group left out has n groups before it, each with an element that
    comes before all of its own. For the same reason each of the n first elements is at least the n-th maximum.

    Returns:
        [TOP] int32, the groups in ascending order; float32, the least of their maxima.
    """
    group = tl.arange(0, GROUPS_PADDED)
    # Rows times groups may pass 2^31.
    maxima = tl.load(group_max_ptr + row.to(tl.int64) * groups + group, mask=group < groups, other=-float("inf"))
    key = tl.topk(order_key(maxima.to(DTYPE), group), TOP)
    return tl.sort(place_of_key(key)), tl.min(value_of_key(key, DTYPE), axis=0)


@triton.jit
def _members(
    address,
    row,
    group,
    chunk,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    vocab_size,
    DTYPE: tl.constexpr,
    KEY: tl.constexpr,
    VIEW: tl.constexpr,
    TOP: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """[GROUP, CHUNK] keys of the members of the ``chunk``-th CHUNK of TOP groups.

    Places count through all groups; columns past the row's end have the value -inf. A group is a column here, so that
    neighbouring threads read neighbouring elements, and one thread has an element of each group.
    """
    chunks = tl.reshape(group, [TOP // CHUNK, CHUNK])
    some = tl.sum(tl.where(tl.arange(0, TOP // CHUNK)[:, None] == chunk, chunks, 0), axis=0)
    within = tl.arange(0, GROUP)[:, None]
    column = some[None, :] * GROUP + within
    # One element a thread and load, as the row's alignment is unknown.
    pointers = tl.multiple_of(pointer_to(address, DTYPE) + column, (DTYPE.primitive_bitwidth // 8, 1))
    x = tl.load(pointers, mask=column < vocab_size, other=-float("inf"))
    if VIEW != 0:
        inside = column < vocab_size
        x = process(x.to(tl.float32), column, inside, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW).to(KEY)
    return order_key(x, (tl.arange(0, CHUNK) + chunk * CHUNK)[None, :] * GROUP + within)


@triton.jit
def _collect(
    address,
    row,
    group,
    threshold,
    slots_ptr,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    vocab_size,
    DTYPE: tl.constexpr,
    KEY: tl.constexpr,
    VIEW: tl.constexpr,
    TOP: tl.constexpr,
    CHUNK: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """Stores the keys of all members of TOP groups that are at least ``threshold``, as far as SLOTS go, in any order.

    Returns:
        int32, how many there are.
    """
    count = vocab_size * 0
    for chunk in range(TOP // CHUNK):
        key = _members(
            address,
            row,
            group,
            chunk,
            view_ptr,
            cut_value_ptr,
            cut_id_ptr,
            vocab_size,
            DTYPE,
            KEY,
            VIEW,
            TOP,
            CHUNK,
        )
        reaches = (key >= threshold).to(tl.int32)
        sizes = tl.sum(reaches, axis=1)
        # Places in an order that costs little: thread by thread, and within a thread group by group.
        slot = (count + tl.cumsum(sizes, axis=0) - sizes)[:, None] + tl.cumsum(reaches, axis=1) - 1
        tl.store(slots_ptr + slot, key, mask=(reaches > 0) & (slot < SLOTS))
        count += tl.sum(sizes, axis=0)
    return count


@triton.jit
def _largest(
    address,
    row,
    group,
    least,
    slots_ptr,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    vocab_size,
    DTYPE: tl.constexpr,
    KEY: tl.constexpr,
    VIEW: tl.constexpr,
    TOP: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """[TOP] keys of the TOP first elements of TOP groups, in order; below those of -inf where there are fewer.

    The elements that reach the least of the groups' maxima are hardly more than TOP, of 128 times as many: they are
    collected in SLOTS places and sorted there. With many ties, or most of the large elements in one group, they are
    too many; then a higher key is searched, by halving, that between TOP and SLOTS of them reach. There is one,
    because keys are distinct.

    slots_ptr: [SLOTS] keys, this row's own room.
    """
    CHUNK: tl.constexpr = min(_CHUNK, TOP)
    WIDTH: tl.constexpr = slots_ptr.dtype.element_ty.primitive_bitwidth
    infinite = order_key(tl.minimum(least, -float("inf")).to(KEY), 0)
    first = tl.maximum(order_key(least.to(KEY), TOP * GROUP - 1), infinite + 1)
    low = first
    high = first * 0 + (2 ** (WIDTH - 1) - 1)
    threshold = first
    searching = vocab_size > 0
    count = vocab_size * 0
    while searching:
        count = _collect(
            address,
            row,
            group,
            threshold,
            slots_ptr,
            view_ptr,
            cut_value_ptr,
            cut_id_ptr,
            vocab_size,
            DTYPE,
            KEY,
            VIEW,
            TOP,
            CHUNK,
            SLOTS,
        )
        tl.debug_barrier()  # what one thread of the program stored, another loads or stores over
        searching = (count > SLOTS) | ((count < TOP) & (threshold != first))
        low = tl.where(count > SLOTS, threshold, low)
        high = tl.where(count > SLOTS, high, threshold)
        threshold = (low >> 1) + (high >> 1) + (low & high & 1)
    slot = tl.arange(0, SLOTS)
    return tl.topk(tl.load(slots_ptr + slot, mask=slot < count, other=-(2 ** (WIDTH - 1))), TOP)


@triton.jit
def _log_sum_exp(row, temperature, tile_max_ptr, tile_sum_ptr, tiles, TILES: tl.constexpr):
    """float64, of one row at a temperature, float64, 0 counting as 1."""
    tile = tl.arange(0, TILES)[None, :]
    tile_max = tl.load(tile_max_ptr + row * tiles + tile, mask=tile < tiles, other=-float("inf"))
    tile_sum = tl.load(tile_sum_ptr + row * tiles + tile, mask=tile < tiles, other=0.0)
    maximum, masses, _ = join_tiles(tile_max, tile_sum, temperature)
    highest = tl.max(maximum, axis=0).to(tl.float64) / effective(temperature)
    return highest + tl.log(tl.sum(pair_sum_rows(masses, 1, TILES), axis=0))


@triton.jit
def _store_largest(
    address,
    row,
    group_max_ptr,
    slots_ptr,
    top_ids_ptr,
    top_logits_ptr,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    vocab_size,
    groups,
    top_n,
    DTYPE: tl.constexpr,
    KEY: tl.constexpr,
    VIEW: tl.constexpr,
    GROUPS_PADDED: tl.constexpr,
    TOP: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """Finds and stores the first ``top_n`` entries of a row; id -1 and NaN where there is none above -inf."""
    group, least = _first_groups(group_max_ptr, row, groups, KEY, GROUPS_PADDED, TOP)
    key = _largest(
        address,
        row,
        group,
        least,
        slots_ptr + row.to(tl.int64) * SLOTS,
        view_ptr,
        cut_value_ptr,
        cut_id_ptr,
        vocab_size,
        DTYPE,
        KEY,
        VIEW,
        TOP,
        SLOTS,
    )
    x = value_of_key(key, KEY)
    place = place_of_key(key)
    # A slot without an entry has no place either.
    ids = tl.gather(group, tl.minimum(place // GROUP, TOP - 1), axis=0) * GROUP + place % GROUP
    ids = tl.where(x > -float("inf"), ids, -1)
    entry = tl.arange(0, TOP)
    place = row.to(tl.int64) * top_n + entry
    tl.store(top_ids_ptr + place, ids, mask=entry < top_n)
    tl.store(top_logits_ptr + place, tl.where(ids >= 0, x, float("nan")), mask=entry < top_n)


@triton.jit
def _store_chosen(
    address,
    row,
    chosen_ids_ptr,
    chosen_logits_ptr,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    vocab_size,
    chosen,
    DTYPE: tl.constexpr,
    VIEW: tl.constexpr,
):
    """Looks up and stores the logits of a row's chosen ids; NaN where the id is -1."""
    for start in range(0, chosen, _CHOSEN):
        entry = start + tl.arange(0, _CHOSEN)
        place = row.to(tl.int64) * chosen + entry
        ids = tl.load(chosen_ids_ptr + place, mask=entry < chosen, other=-1)
        known = (ids >= 0) & (ids < vocab_size)
        x = load_at(address, ids, known, DTYPE)
        x = process(x, ids, known, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW)
        tl.store(chosen_logits_ptr + place, tl.where(ids >= 0, x, float("nan")), mask=entry < chosen)


@triton.jit
def count_reaching(
    address,
    vocab_size,
    value,
    tile,
    group_max_ptr,
    row,
    groups,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    DTYPE: tl.constexpr,
    VIEW: tl.constexpr,
):
    """int32: how many elements of a tile are at least ``value``. Only groups whose maximum reaches it are read."""
    group = tile * GROUPS + tl.arange(0, GROUPS)
    maxima = tl.load(group_max_ptr + row.to(tl.int64) * groups + group, mask=group < groups, other=-float("inf"))
    x = load_tile(address, vocab_size, tile, (maxima >= value)[:, None], DTYPE)
    x = process_tile(x, vocab_size, tile, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW)
    return tl.sum((x >= value).to(tl.int32))


@kernel
def _topk_logprobs_kernel(
    emitted_ptr,
    address_ptr,
    temperature_ptr,
    tile_max_ptr,
    tile_sum_ptr,
    group_max_ptr,
    chosen_ids_ptr,
    slots_ptr,
    logits_ptr,
    log_sum_exp_ptr,
    ranks_ptr,
    top_ids_ptr,
    top_logits_ptr,
    chosen_logits_ptr,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    vocab_size,
    tiles,
    groups,
    parts,
    tiles_a_part,
    top_n,
    chosen,
    DTYPE: tl.constexpr,
    KEY: tl.constexpr,
    VIEW: tl.constexpr,
    AT_ONE: tl.constexpr,
    TILES: tl.constexpr,
    GROUPS_PADDED: tl.constexpr,
    TOP: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """One part of what is reported beside one row's token.

    Part 0 is its logit, the log-sum-exp, the largest entries and the chosen ids, each further part its rank within
    some tiles.

    In: emitted_ptr [N] int32, -1 for none; address_ptr [N] int64; temperature_ptr [N] float64, not read if AT_ONE;
    tile_max_ptr, tile_sum_ptr [N, tiles] float32 and group_max_ptr [N, groups] float32, of the view that is reported;
    chosen_ids_ptr [N, chosen] int32, -1 for none; view_ptr, cut_value_ptr and cut_id_ptr as for ``process``.
    Scratch: slots_ptr [N, SLOTS] int32 beside 16-bit KEY, else int64.
    Out: logits_ptr [N] float32; log_sum_exp_ptr [N] float64; ranks_ptr [N] int32, zero before, added to; top_ids_ptr
    [N, top_n] int32, top_logits_ptr [N, top_n] float32; chosen_logits_ptr [N, chosen] float32. Rows without a token are
    left as they are.

    The grid is one axis over (row, part). A rank may need the whole row, where a row is flat, so it is cut into parts
    that run beside one another; counts are integers and add up to the same whatever the cut. The largest entries need
    TOP groups of 128, 4,096 elements for a top 20, and are one program's work.
    """
    row = tl.program_id(0) // parts
    part = tl.program_id(0) % parts
    token = tl.load(emitted_ptr + row)
    if token < 0:
        return
    address = tl.load(address_ptr + row)
    logit = load_at(address, token, token < vocab_size, DTYPE)
    logit = process(logit, token, token < vocab_size, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW)
    if part == 0:
        tl.store(logits_ptr + row, logit)
        temperature = (row * 0 + 1).to(tl.float64)
        if not AT_ONE:
            temperature = tl.load(temperature_ptr + row)
        tl.store(log_sum_exp_ptr + row, _log_sum_exp(row, temperature, tile_max_ptr, tile_sum_ptr, tiles, TILES))
        if TOP > 0:
            _store_largest(
                address,
                row,
                group_max_ptr,
                slots_ptr,
                top_ids_ptr,
                top_logits_ptr,
                view_ptr,
                cut_value_ptr,
                cut_id_ptr,
                vocab_size,
                groups,
                top_n,
                DTYPE,
                KEY,
                VIEW,
                GROUPS_PADDED,
                TOP,
                SLOTS,
            )
        _store_chosen(
            address,
            row,
            chosen_ids_ptr,
            chosen_logits_ptr,
            view_ptr,
            cut_value_ptr,
            cut_id_ptr,
            vocab_size,
            chosen,
            DTYPE,
            VIEW,
        )
    else:
        count = token * 0
        first = (part - 1) * tiles_a_part
        last = tl.minimum(first + tiles_a_part, tiles)
        for tile in range(first, last):
            if tl.load(tile_max_ptr + row * tiles + tile) >= logit:
                count += count_reaching(
                    address,
                    vocab_size,
                    logit,
                    tile,
                    group_max_ptr,
                    row,
                    groups,
                    view_ptr,
                    cut_value_ptr,
                    cut_id_ptr,
                    DTYPE,
                    VIEW,
                )
        # A token of -inf is reached by all columns, of which those past the row's end were counted too.
        count = tl.minimum(count, tl.minimum(last * TILE, vocab_size) - first * TILE)
        if count > 0:
            tl.atomic_add(ranks_ptr + row, count, sem="relaxed")


def topk_logprobs(
    batch: Batch,
    target_stats: RowStats,
    emitted: Tensor,
    *,
    raw: bool,
    top_n: int,
    ranks: bool,
    chosen_ids: Tensor | None,
) -> TopLogits:
    """Numbers beside each emitted token; see :func:`sampler_kernels.topk_logprobs.reference.topk_logprobs`.

    Rows without a token hold garbage.
    """
    rows, device = len(batch.target), emitted.device
    chosen = 0 if chosen_ids is None else chosen_ids.shape[1]
    out = _allocate(rows, top_n, chosen, device)
    tiles, groups = target_stats.tile_max.shape[1], target_stats.group_max.shape[1]
    table = batch.target.raw if raw else batch.target
    view = view_of(table, device)
    tile_max, group_max, tile_sum = target_stats.tile_max, target_stats.group_max, target_stats.tile_sum
    if raw:
        assert target_stats.tile_raw_sum is not None, "sums at temperature 1 were not asked for"
        tile_sum = target_stats.tile_raw_sum
        if target_stats.raw_tile_max is not None and target_stats.raw_group_max is not None:
            tile_max, group_max = target_stats.raw_tile_max, target_stats.raw_group_max
    key = torch.float32 if view.flags & EDITS else table.dtype  # an edited element may be any float32
    top = next(bucket for bucket in (0, *_TOP_BUCKETS) if bucket >= top_n)
    slots = max(_FEWEST_SLOTS, 2 * top)
    tiles_a_part = 1 if rows <= _FEW_ROWS else _MANY_TILES
    parts = 1 + (triton.cdiv(tiles, tiles_a_part) if ranks else 0)
    _topk_logprobs_kernel[(rows * parts,)](
        emitted,
        table.pointers(device).address,
        target_stats.temperature if target_stats.temperature is not None else placeholder(tile_sum, torch.float64),
        tile_max,
        tile_sum,
        group_max,
        chosen_ids if chosen_ids is not None else placeholder(emitted, torch.int32),
        _slots(rows, top, slots, key, device),
        out.logits,
        out.log_sum_exp,
        out.ranks,
        out.top_ids,
        out.top_logits,
        out.chosen_logits,
        *view.arguments,
        batch.vocab_size,
        tiles,
        groups,
        parts,
        tiles_a_part,
        top_n,
        chosen,
        DTYPE=TRITON_DTYPES[table.dtype],
        KEY=TRITON_DTYPES[key],
        VIEW=view.flags,
        AT_ONE=raw,
        TILES=power_of_two(tiles),
        GROUPS_PADDED=power_of_two(max(groups, top)),
        TOP=top,
        SLOTS=slots,
        num_warps=_WARPS,
        maxnreg=_MAX_REGISTERS,
    )
    return out


def _allocate(rows: int, top_n: int, chosen: int, device: torch.device) -> TopLogits:
    """Room for the numbers of N rows; ranks start at 0, since their parts are added up."""
    return TopLogits(
        logits=torch.empty(rows, device=device),
        log_sum_exp=torch.empty(rows, dtype=torch.float64, device=device),
        ranks=torch.zeros(rows, dtype=torch.int32, device=device),
        top_ids=torch.empty((rows, top_n), dtype=torch.int32, device=device),
        top_logits=torch.empty((rows, top_n), device=device),
        chosen_logits=torch.empty((rows, chosen), device=device),
    )


def _slots(rows: int, top: int, slots: int, key: torch.dtype, device: torch.device) -> Tensor:
    """Scratch for the keys of entries that may be among the largest: half a kilobyte a row for a top 20 of bf16."""
    size = (rows, slots if top else 0)
    return torch.empty(size, dtype=torch.int64 if key == torch.float32 else torch.int32, device=device)
