"""Maxima, masses and argmaxes of the tiles of a row, and maxima of its groups, in one pass over every row."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sampler_kernels.device.compile import TRITON_DTYPES, kernel, placeholder
from sampler_kernels.device.elements import GROUP, GROUPS, TILE, load_at, load_tile
from sampler_kernels.device.sums import exponent_scale
from sampler_kernels.device.view import CUT, process, process_tile, view_of
from sampler_kernels.filters.kernel import cut
from sampler_kernels.layout import num_groups, num_tiles
from sampler_kernels.outcome import RowStats
from sampler_kernels.rows import RowTable

_WARPS = 4


@triton.jit
def _tile_stats(
    program,
    address_ptr,
    width_ptr,
    temperature_ptr,
    tile_max_ptr,
    tile_sum_ptr,
    tile_raw_sum_ptr,
    tile_argmax_ptr,
    group_max_ptr,
    raw_tile_max_ptr,
    raw_group_max_ptr,
    view_ptr,
    tiles,
    groups,
    DTYPE: tl.constexpr,
    RAW: tl.constexpr,
    VIEW: tl.constexpr,
):
    """One tile of one row of one table."""
    row = program // tiles
    tile = program % tiles
    address = tl.load(address_ptr + row)
    width = tl.load(width_ptr + row)
    temperature = tl.load(temperature_ptr + row)
    raw = load_tile(address, width, tile, True, DTYPE)
    x = process_tile(raw, width, tile, row, view_ptr, view_ptr, view_ptr, VIEW)
    group_max = tl.max(x, axis=1)
    tile_max = tl.max(group_max, axis=0)
    # Where nothing is above -inf the difference would be NaN; so would it be for +inf, and that is how NaN and +inf
    # are found: tl.max passes over NaN, but the sum does not, and it costs nothing to look.
    below = x - tl.where(tile_max == -float("inf"), 0.0, tile_max)
    tile_sum = tl.sum(tl.exp2(below * exponent_scale(temperature)))
    raw_sum = tile_sum
    if RAW:
        if VIEW == 0:
            if (temperature != 1.0) & (temperature != 0.0):
                raw_sum = tl.sum(tl.exp2(below * 1.4426950408889634))
        else:
            # Of a masked or edited row the raw numbers are others: taken here, where the raw elements are at hand.
            raw_group_max = tl.max(raw, axis=1)
            raw_max = tl.max(raw_group_max, axis=0)
            raw_sum = tl.sum(tl.exp2((raw - tl.where(raw_max == -float("inf"), 0.0, raw_max)) * 1.4426950408889634))

    # The argmax is looked for in the first group that reaches the maximum, loaded again from the cache: an index
    # carried through the maximum would cost a third of the whole pass.
    group = tl.arange(0, GROUPS)
    first = tl.min(tl.where(group_max == tile_max, group, GROUPS - 1), axis=0)
    column = tile * TILE + first * GROUP + tl.arange(0, GROUP)
    candidate = load_at(address, column, column < width, DTYPE)
    candidate = process(candidate, column, column < width, row, view_ptr, view_ptr, view_ptr, VIEW)
    last = tile * TILE + TILE - 1
    argmax = tl.min(tl.where((candidate == tile_max) & (column < width), column, last), axis=0)

    # Rows times tiles stays far below 2^31, rows times columns does not: only addresses need 64 bits.
    place = row * tiles + tile
    is_nan = tile_sum != tile_sum  # noqa: PLR0124
    tl.store(tile_max_ptr + place, tl.where(is_nan, float("nan"), tile_max))
    tl.store(tile_sum_ptr + place, tile_sum)
    if RAW:
        tl.store(tile_raw_sum_ptr + place, raw_sum)
    tl.store(tile_argmax_ptr + place, tl.where(tile * TILE < width, argmax, 0))
    group = tile * GROUPS + group
    tl.store(group_max_ptr + row.to(tl.int64) * groups + group, group_max, mask=group < groups)
    if RAW and VIEW != 0:
        tl.store(raw_tile_max_ptr + place, raw_max)
        tl.store(raw_group_max_ptr + row.to(tl.int64) * groups + group, raw_group_max, mask=group < groups)


@kernel
def _stats_kernel(
    target_address_ptr,
    target_width_ptr,
    target_temperature_ptr,
    target_max_ptr,
    target_sum_ptr,
    target_raw_sum_ptr,
    target_argmax_ptr,
    target_group_max_ptr,
    target_raw_max_ptr,
    target_raw_group_max_ptr,
    target_view_ptr,
    draft_address_ptr,
    draft_width_ptr,
    draft_temperature_ptr,
    draft_max_ptr,
    draft_sum_ptr,
    draft_argmax_ptr,
    draft_group_max_ptr,
    target_programs,
    target_tiles,
    target_groups,
    draft_tiles,
    draft_groups,
    TARGET_DTYPE: tl.constexpr,
    DRAFT_DTYPE: tl.constexpr,
    RAW: tl.constexpr,
    VIEW: tl.constexpr,
):
    """Statistics of two tables of rows, target and draft.

    Of each table with R rows: address_ptr [R] int64, width_ptr [R] int32, temperature_ptr [R] float64;
    out come max_ptr, sum_ptr [R, tiles] float32, argmax_ptr [R, tiles] int32, group_max_ptr [R, groups] float32, and of
    the target raw_sum_ptr [R, tiles] float32 if RAW. If VIEW, target rows are masked and edited as view_ptr [R, 3]
    int64 says, and if RAW, raw_max_ptr [R, tiles] and raw_group_max_ptr [R, groups] float32 are of the rows as they
    came.

    The grid is one axis over (row, tile), tile fastest, target rows first: neighbours read neighbouring memory, and a
    single axis has room for 2^31 programs where a second one ends at 65,535. A program is one tile of 4,096 columns:
    large enough that its own start costs little beside 8 KiB of loads, small enough to stay in the registers of four
    warps, and the unit of the partial sums anyway.
    """
    program = tl.program_id(0)
    if program < target_programs:
        _tile_stats(
            program,
            target_address_ptr,
            target_width_ptr,
            target_temperature_ptr,
            target_max_ptr,
            target_sum_ptr,
            target_raw_sum_ptr,
            target_argmax_ptr,
            target_group_max_ptr,
            target_raw_max_ptr,
            target_raw_group_max_ptr,
            target_view_ptr,
            target_tiles,
            target_groups,
            TARGET_DTYPE,
            RAW,
            VIEW,
        )
    else:
        _tile_stats(
            program - target_programs,
            draft_address_ptr,
            draft_width_ptr,
            draft_temperature_ptr,
            draft_max_ptr,
            draft_sum_ptr,
            draft_sum_ptr,
            draft_argmax_ptr,
            draft_group_max_ptr,
            draft_max_ptr,
            draft_group_max_ptr,
            target_view_ptr,
            draft_tiles,
            draft_groups,
            DRAFT_DTYPE,
            False,
            0,
        )


def stats(rows: RowTable, temperature: Tensor, *, raw: bool) -> RowStats:
    """Statistics of every row of a table. Arguments and result as :func:`sampler_kernels.stats.reference.stats`."""
    none = RowTable((), rows.block[:0], rows.index[:0])
    return stats_of_both(rows, temperature, none, temperature, raw=raw)[0]


def stats_of_both(
    target: RowTable, target_temperature: Tensor, draft: RowTable, draft_temperature: Tensor, *, raw: bool
) -> tuple[RowStats, RowStats]:
    """Statistics of target and draft rows in one launch.

    Args:
        target: N rows.
        target_temperature: [N] float64; 0 counts as 1.
        draft: R rows, of any dtype; may be empty.
        draft_temperature: [R] float64, likewise.
        raw: Whether sums at temperature 1 are wanted of the target rows.

    Returns:
        Of the target rows, and of the draft rows without raw sums.
    """
    device = target_temperature.device
    view = view_of(target, device)
    before_cut = view.flags & ~CUT
    of_target = _allocate(target, target_temperature, raw=raw, apart=raw and before_cut != 0)
    of_draft = _allocate(draft, draft_temperature, raw=False, apart=False)
    programs = of_target.tile_max.numel()
    grid = (programs + of_draft.tile_max.numel(),)
    if grid[0]:
        at, draft_at = target.pointers(device), draft.pointers(device)
        nothing = placeholder(target_temperature, torch.float32)
        _stats_kernel[grid](
            at.address,
            at.width,
            target_temperature,
            of_target.tile_max,
            of_target.tile_sum,
            of_target.tile_raw_sum if of_target.tile_raw_sum is not None else nothing,
            of_target.tile_argmax,
            of_target.group_max,
            of_target.raw_tile_max if of_target.raw_tile_max is not None else nothing,
            of_target.raw_group_max if of_target.raw_group_max is not None else nothing,
            view.table,
            draft_at.address,
            draft_at.width,
            draft_temperature,
            of_draft.tile_max,
            of_draft.tile_sum,
            of_draft.tile_argmax,
            of_draft.group_max,
            programs,
            of_target.tile_max.shape[1],
            of_target.group_max.shape[1],
            of_draft.tile_max.shape[1],
            of_draft.group_max.shape[1],
            TARGET_DTYPE=TRITON_DTYPES[target.dtype],
            DRAFT_DTYPE=TRITON_DTYPES[draft.dtype],
            RAW=raw,
            VIEW=before_cut,
            num_warps=_WARPS,
        )
    if target.processing is not None and target.processing.filters is not None:
        cut(target, target.processing.filters, of_target, target_temperature)
    return of_target, of_draft


def _allocate(rows: RowTable, temperature: Tensor, *, raw: bool, apart: bool) -> RowStats:
    """Room for the statistics of R rows: about 1.4 % of 16-bit logits, most of it the group maxima.

    Twice that where raw maxima are kept ``apart``.
    """
    device = temperature.device
    shape, groups = (len(rows), num_tiles(rows.max_width)), (len(rows), num_groups(rows.max_width))
    return RowStats(
        tile_max=torch.empty(shape, device=device),
        tile_sum=torch.empty(shape, device=device),
        tile_raw_sum=torch.empty(shape, device=device) if raw else None,
        tile_argmax=torch.empty(shape, dtype=torch.int32, device=device),
        group_max=torch.empty(groups, device=device),
        raw_tile_max=torch.empty(shape, device=device) if apart else None,
        raw_group_max=torch.empty(groups, device=device) if apart else None,
        temperature=temperature,
    )
