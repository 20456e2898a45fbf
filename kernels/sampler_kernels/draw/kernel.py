"""The final token of a request: the mass of every tile of what is drawn from, then one tile and one token in it.

Two launches. The first has a program for every tile, because a residual reads a row pair again and one program alone
would take longer for it than the whole rest of the step; the second walks the sums.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.device.compile import TRITON_DTYPES, kernel, placeholder, power_of_two
from sampler_kernels.device.elements import GROUP, GROUPS, TILE, load_at, load_tile, tile_columns
from sampler_kernels.device.maps import draft_column, stacked_maps
from sampler_kernels.device.sums import effective, exponent_scale, join_tiles, pair_sum, pair_sum_rows
from sampler_kernels.device.view import process, process_tile, view_of
from sampler_kernels.flatten.kernel import store_emitted
from sampler_kernels.outcome import Decision, DrawKind, RowStats
from sampler_kernels.philox.kernel import DRAW, uniform_of

_TILE_WARPS = 4
_PICK_WARPS = 4

_NOTHING = tl.constexpr(int(DrawKind.NOTHING))
_ARGMAX = tl.constexpr(int(DrawKind.ARGMAX))
_RESIDUAL = tl.constexpr(int(DrawKind.RESIDUAL))


@triton.jit
def joined(row, wanted, temperature, tile_max_ptr, tile_sum_ptr, tiles, TILES: tl.constexpr):
    """What one row comes to; nothing is loaded where it is not ``wanted``.

    Returns:
        maximum, float32; masses of the tiles relative to it, [TILES] float64; their total, float64; tile maxima,
        [TILES] float32.
    """
    tile = tl.arange(0, TILES)
    inside = tile < tl.where(wanted, tiles, 0)
    tile_max = tl.load(tile_max_ptr + row * tiles + tile, mask=inside, other=-float("inf"))
    tile_sum = tl.load(tile_sum_ptr + row * tiles + tile, mask=inside, other=0.0)
    maximum, masses, _ = join_tiles(tl.reshape(tile_max, [1, TILES]), tl.reshape(tile_sum, [1, TILES]), temperature)
    total = tl.sum(pair_sum_rows(masses, 1, TILES), axis=0)
    return tl.max(maximum, axis=0), tl.reshape(masses, [TILES]), total, tile_max


@triton.jit
def _masses(x, maximum, scale, factor, y, draft_maximum, draft_scale, draft_factor):
    """float32 max(p - q, 0) of elements x of the target row and y of the draft row; y = -inf takes nothing away.

    The same expression for a tile's sum and for its tokens, so that both see the same masses.
    """
    p = tl.exp2((x - maximum) * scale) * factor
    q = tl.exp2((y - draft_maximum) * draft_scale) * draft_factor
    return tl.maximum(p - q, 0.0)


@triton.jit
def _draft_tile(
    address,
    width,
    tile,
    which,
    maps_ptr,
    vocab_size,
    DTYPE: tl.constexpr,
    HAS_MAPS: tl.constexpr,
):
    """[GROUPS, GROUP] float32: logits of the draft row for the target ids of a tile; -inf where there are none."""
    y = load_tile(address, tl.where(which < 0, width, 0), tile, True, DTYPE)
    if HAS_MAPS:
        if which >= 0:
            token = tile_columns(tile)
            column = draft_column(token, which, token < vocab_size, maps_ptr, vocab_size, HAS_MAPS)
            y = load_at(address, column, (column >= 0) & (column < width) & (token < vocab_size), DTYPE)
    return y


@triton.jit
def _rejected(request, place, kind, draft_token_ids_ptr, draft_row_ptr):
    """What a residual takes away: the draft row, -1 for none; and where there is none the token, -1 for none."""
    residual = kind == _RESIDUAL
    draft_row = tl.load(draft_row_ptr + place, mask=residual, other=-1)
    token = tl.load(draft_token_ids_ptr + place, mask=residual & (draft_row < 0), other=-1)
    return draft_row, token


@triton.jit
def residual_tile_mass(
    request,
    row,
    place,
    tile,
    c,
    rejected,
    draft_row,
    out_ptr,
    draft_map_ptr,
    maps_ptr,
    temperature_ptr,
    draft_temperature_ptr,
    target_address_ptr,
    target_max_ptr,
    target_sum_ptr,
    draft_address_ptr,
    draft_width_ptr,
    draft_max_ptr,
    draft_sum_ptr,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    vocab_size,
    target_tiles,
    draft_tiles,
    TARGET_DTYPE: tl.constexpr,
    DRAFT_DTYPE: tl.constexpr,
    VIEW: tl.constexpr,
    TARGET_TILES: tl.constexpr,
    DRAFT_TILES: tl.constexpr,
    HAS_MAPS: tl.constexpr,
):
    """Stores the mass of one tile of a residual, float64, at ``out_ptr``.

    Beside a draft row the sum of max(c * p - q, 0), ``c`` float64. Beside a point mass (``draft_row`` -1), for the tile
    of the ``rejected`` token alone, the sum of exp((x - tile's maximum) / T) without it; else nothing is stored.
    """
    temperature = tl.load(temperature_ptr + request)
    address = tl.load(target_address_ptr + row)
    scale = exponent_scale(temperature)
    if draft_row >= 0:
        draft_temperature = tl.load(draft_temperature_ptr + request)
        draft_address = tl.load(draft_address_ptr + draft_row)
        draft_width = tl.load(draft_width_ptr + draft_row)
        which = tl.load(draft_map_ptr + place)
        x = load_tile(address, vocab_size, tile, True, TARGET_DTYPE)
        x = process_tile(x, vocab_size, tile, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW)
        y = _draft_tile(
            draft_address,
            draft_width,
            tile,
            which,
            maps_ptr,
            vocab_size,
            DRAFT_DTYPE,
            HAS_MAPS,
        )
        maximum, _, total, _ = joined(
            row, True, temperature, target_max_ptr, target_sum_ptr, target_tiles, TARGET_TILES
        )
        draft_maximum, _, draft_total, _ = joined(
            draft_row, True, draft_temperature, draft_max_ptr, draft_sum_ptr, draft_tiles, DRAFT_TILES
        )
        factor = (c / total).to(tl.float32)
        draft_scale = exponent_scale(draft_temperature)
        masses = _masses(x, maximum, scale, factor, y, draft_maximum, draft_scale, (1.0 / draft_total).to(tl.float32))
        sums = pair_sum(pair_sum_rows(masses, GROUPS, GROUP), GROUPS)
        tl.store(out_ptr, sums.to(tl.float64))
    elif tile == rejected // TILE:
        x = load_tile(address, vocab_size, tile, True, TARGET_DTYPE)
        x = process_tile(x, vocab_size, tile, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW)
        maximum = tl.load(target_max_ptr + row * target_tiles + tile)
        below = tl.where(tile_columns(tile) == rejected, -float("inf"), x - maximum)
        mass = tl.sum(tl.exp2(below * scale))
        tl.store(out_ptr, mass.to(tl.float64))


@kernel
def _tile_masses_kernel(
    cu_num_logits_ptr,
    cu_drafts_ptr,
    draft_token_ids_ptr,
    draft_row_ptr,
    draft_map_ptr,
    maps_ptr,
    temperature_ptr,
    draft_temperature_ptr,
    num_accepted_ptr,
    draw_kind_ptr,
    scale_ptr,
    target_address_ptr,
    target_max_ptr,
    target_sum_ptr,
    draft_address_ptr,
    draft_width_ptr,
    draft_max_ptr,
    draft_sum_ptr,
    masses_ptr,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    vocab_size,
    target_tiles,
    draft_tiles,
    TARGET_DTYPE: tl.constexpr,
    DRAFT_DTYPE: tl.constexpr,
    VIEW: tl.constexpr,
    TARGET_TILES: tl.constexpr,
    DRAFT_TILES: tl.constexpr,
    HAS_MAPS: tl.constexpr,
):
    """The mass of one tile of what one request's final token is drawn from, where that is a residual.

    In: columns of ``Batch`` and ``Decision`` by their names; maps_ptr [maps, V] int32; of target and draft rows
    address_ptr [R] int64, width_ptr [R] int32, max_ptr and sum_ptr [R, tiles] float32; view_ptr, cut_value_ptr and
    cut_id_ptr as for ``process``.
    Out: masses_ptr [B, target_tiles] float64: beside a draft row the sum of max(scale * p - q, 0); beside a point mass,
    for the tile of the rejected token alone, the sum of exp((x - tile's maximum) / T) without it. Else not written.

    The grid is one axis over (request, tile), tile fastest. A program is one tile because the masses are per tile, and
    because 32 of them then share the reading of one row pair.
    """
    request = tl.program_id(0) // target_tiles
    tile = tl.program_id(0) % target_tiles
    kind = tl.load(draw_kind_ptr + request)
    if kind != _RESIDUAL:
        return
    accepted = tl.load(num_accepted_ptr + request)
    row = tl.load(cu_num_logits_ptr + request) + accepted
    place = tl.load(cu_drafts_ptr + request) + accepted
    draft_row, rejected = _rejected(request, place, kind, draft_token_ids_ptr, draft_row_ptr)
    residual_tile_mass(
        request,
        row,
        place,
        tile,
        tl.load(scale_ptr + request),
        rejected,
        draft_row,
        masses_ptr + request.to(tl.int64) * target_tiles + tile,
        draft_map_ptr,
        maps_ptr,
        temperature_ptr,
        draft_temperature_ptr,
        target_address_ptr,
        target_max_ptr,
        target_sum_ptr,
        draft_address_ptr,
        draft_width_ptr,
        draft_max_ptr,
        draft_sum_ptr,
        view_ptr,
        cut_value_ptr,
        cut_id_ptr,
        vocab_size,
        target_tiles,
        draft_tiles,
        TARGET_DTYPE,
        DRAFT_DTYPE,
        VIEW,
        TARGET_TILES,
        DRAFT_TILES,
        HAS_MAPS,
    )


@triton.jit
def _first_above(masses, threshold, SIZE: tl.constexpr):
    """The first place whose inclusive prefix sum exceeds the threshold, and the mass before it.

    masses: [SIZE] float64, none negative; threshold: float64. A place without mass is never the one, whatever rounding
    did to the prefix sums there; and a threshold that rounding has put at or past the total falls to the last place
    with mass.
    """
    place = tl.arange(0, SIZE)
    above = (tl.cumsum(masses, axis=0) > threshold) & (masses > 0.0)
    last = tl.max(tl.where(masses > 0.0, place, 0), axis=0)
    first = tl.minimum(tl.min(tl.where(above, place, SIZE), axis=0), last)
    return first, tl.sum(tl.where(place < first, masses, 0.0), axis=0)


@triton.jit
def token_at(
    u,
    row,
    masses,
    tile_max,
    maximum,
    total,
    temperature,
    rejected,
    draft_row,
    c,
    which,
    draft_temperature,
    maps_ptr,
    target_address_ptr,
    draft_address_ptr,
    draft_width_ptr,
    draft_max_ptr,
    draft_sum_ptr,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    vocab_size,
    draft_tiles,
    TARGET_DTYPE: tl.constexpr,
    DRAFT_DTYPE: tl.constexpr,
    VIEW: tl.constexpr,
    TARGET_TILES: tl.constexpr,
    DRAFT_TILES: tl.constexpr,
    HAS_MAPS: tl.constexpr,
):
    """The token that a uniform picks, int32: the tile first, then the group, then the element.

    u: float64. row: int32, the target row. masses: [TARGET_TILES] float64, of the tiles of what is drawn from; some
    above 0. tile_max: [TARGET_TILES] float32 and maximum: float32, of the target row; total: float64, its mass relative
    to the maximum. rejected: int32, the token that a point mass takes away, -1 for none. draft_row: int32, what is
    taken away, -1 for none; which: int32, its map, -1 for none. c: float64, factor of p beside a draft row.
    """
    each = tl.arange(0, TARGET_TILES)
    threshold = u * tl.sum(masses, axis=0)
    tile, before = _first_above(masses, threshold, TARGET_TILES)
    # The share of the tile's mass that the uniform has left over: carried as a share, because the tile's sum was
    # rounded to float32 and its tokens are about to be summed in float64.
    chosen_mass = tl.sum(tl.where(each == tile, masses, 0.0), axis=0)
    share = (threshold - before) / chosen_mass

    address = tl.load(target_address_ptr + row)
    beside = draft_row >= 0
    draft_maximum, _, draft_total, _ = joined(
        draft_row, beside, draft_temperature, draft_max_ptr, draft_sum_ptr, draft_tiles, DRAFT_TILES
    )
    draft_address = tl.load(draft_address_ptr + draft_row, mask=beside, other=0)
    draft_width = tl.load(draft_width_ptr + draft_row, mask=beside, other=0)
    # Beside a draft row masses are probabilities; otherwise they are relative to the tile's own maximum, so that a
    # tile far below the row's maximum keeps its digits.
    tile_maximum = tl.max(tl.where(each == tile, tile_max, -float("inf")), axis=0)
    reference = tl.where(beside, maximum, tile_maximum)
    factor = tl.where(beside, c / total, 1.0).to(tl.float32)
    draft_factor = tl.where(beside, 1.0 / draft_total, 0.0).to(tl.float32)
    scale = exponent_scale(temperature)
    draft_scale = exponent_scale(draft_temperature)

    x = load_tile(address, vocab_size, tile, True, TARGET_DTYPE)
    x = process_tile(x, vocab_size, tile, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW)
    y = _draft_tile(
        draft_address,
        draft_width,
        tile,
        which,
        maps_ptr,
        vocab_size,
        DRAFT_DTYPE,
        HAS_MAPS,
    )
    x = tl.where(tile_columns(tile) == rejected, -float("inf"), x)
    element = _masses(x, reference, scale, factor, y, draft_maximum, draft_scale, draft_factor)
    group_masses = pair_sum_rows(element.to(tl.float64), GROUPS, GROUP)
    threshold = share * tl.sum(group_masses, axis=0)
    group, before = _first_above(group_masses, threshold, GROUPS)

    column = tile * TILE + group * GROUP + tl.arange(0, GROUP)
    inside = column < vocab_size
    wanted = inside & (column != rejected)
    x = load_at(address, column, wanted, TARGET_DTYPE)
    x = process(x, column, wanted, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW)
    draft_columns = draft_column(column, which, inside, maps_ptr, vocab_size, HAS_MAPS)
    known = inside & (draft_columns >= 0) & (draft_columns < draft_width)
    y = load_at(draft_address, draft_columns, known, DRAFT_DTYPE)
    element = _masses(x, reference, scale, factor, y, draft_maximum, draft_scale, draft_factor)
    index, _ = _first_above(element.to(tl.float64), threshold - before, GROUP)
    return tile * TILE + group * GROUP + index


@kernel
def _pick_kernel(
    draft_lengths_ptr,
    cu_num_logits_ptr,
    cu_drafts_ptr,
    draft_token_ids_ptr,
    draft_row_ptr,
    draft_map_ptr,
    maps_ptr,
    temperature_ptr,
    draft_temperature_ptr,
    seed_ptr,
    position_ptr,
    num_accepted_ptr,
    draw_kind_ptr,
    scale_ptr,
    target_address_ptr,
    target_max_ptr,
    target_sum_ptr,
    target_argmax_ptr,
    draft_address_ptr,
    draft_width_ptr,
    draft_max_ptr,
    draft_sum_ptr,
    masses_ptr,
    tokens_ptr,
    emitted_ptr,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    vocab_size,
    target_tiles,
    draft_tiles,
    TARGET_DTYPE: tl.constexpr,
    DRAFT_DTYPE: tl.constexpr,
    VIEW: tl.constexpr,
    TARGET_TILES: tl.constexpr,
    DRAFT_TILES: tl.constexpr,
    HAS_MAPS: tl.constexpr,
    FLATTEN: tl.constexpr,
):
    """The final token of one request.

    In: as the kernel before it, with its masses_ptr; target_argmax_ptr [N, tiles] int32.
    Out: tokens_ptr [B] int32; if FLATTEN, emitted_ptr [N] int32 as well, the request's own rows of it.

    The grid walks requests. A program holds one tile, the one that the uniform picks, and then one group of it.
    """
    request = tl.program_id(0)
    kind = tl.load(draw_kind_ptr + request)
    accepted = tl.load(num_accepted_ptr + request)
    first_row = tl.load(cu_num_logits_ptr + request)
    row = first_row + accepted
    place = tl.load(cu_drafts_ptr + request) + accepted
    temperature = tl.load(temperature_ptr + request)
    random = (kind != _NOTHING) & (kind != _ARGMAX)
    draft_row, rejected = _rejected(request, place, kind, draft_token_ids_ptr, draft_row_ptr)
    maximum, masses, total, tile_max = joined(
        row, kind != _NOTHING, temperature, target_max_ptr, target_sum_ptr, target_tiles, TARGET_TILES
    )
    each = tl.arange(0, TARGET_TILES)
    token = kind * 0 - 1
    if kind == _ARGMAX:
        peaks = (tile_max == maximum) & (each < target_tiles)
        token = tl.min(tl.load(target_argmax_ptr + row * target_tiles + each, mask=peaks, other=2147483647), axis=0)
    if random:
        # What the target masses become: nothing changes for p itself, one tile beside a point mass, all beside a row.
        anew = tl.where(rejected >= 0, rejected // TILE, -1)
        summed = (each < tl.where(draft_row >= 0, target_tiles, 0)) | ((each == anew) & (each < target_tiles))
        again = tl.load(masses_ptr + request.to(tl.int64) * target_tiles + each, mask=summed, other=0.0)
        relative = tl.exp((tile_max.to(tl.float64) - maximum.to(tl.float64)) / effective(temperature))
        residual = tl.where(summed, tl.where(draft_row >= 0, again, again * relative), masses)
        # A residual that rounding left without mass is drawn from p.
        if tl.sum(residual, axis=0) > 0.0:
            masses = residual
        else:
            draft_row = -1
            rejected = -1
        u = uniform_of(tl.load(seed_ptr + request), tl.load(position_ptr + request) + accepted, DRAW, 0)
        token = token_at(
            u,
            row,
            masses,
            tile_max,
            maximum,
            total,
            temperature,
            rejected,
            draft_row,
            tl.load(scale_ptr + request),
            tl.load(draft_map_ptr + place, mask=draft_row >= 0, other=-1),
            tl.load(draft_temperature_ptr + request),
            maps_ptr,
            target_address_ptr,
            draft_address_ptr,
            draft_width_ptr,
            draft_max_ptr,
            draft_sum_ptr,
            view_ptr,
            cut_value_ptr,
            cut_id_ptr,
            vocab_size,
            draft_tiles,
            TARGET_DTYPE,
            DRAFT_DTYPE,
            VIEW,
            TARGET_TILES,
            DRAFT_TILES,
            HAS_MAPS,
        )
    tl.store(tokens_ptr + request, token)
    if FLATTEN:
        drafts = tl.load(draft_lengths_ptr + request)
        store_emitted(
            emitted_ptr, first_row, drafts, draft_token_ids_ptr, place - accepted, accepted, token, kind != _NOTHING
        )


def draw(batch: Batch, target_stats: RowStats, draft_stats: RowStats, decision: Decision) -> Tensor:
    """Draws the final token of each request. See :func:`sampler_kernels.draw.reference.draw`."""
    return _draw(batch, target_stats, draft_stats, decision, None)


def draw_and_flatten(
    batch: Batch, target_stats: RowStats, draft_stats: RowStats, decision: Decision
) -> tuple[Tensor, Tensor]:
    """:func:`draw` and :func:`sampler_kernels.flatten.kernel.flatten` of its tokens, one launch fewer.

    Returns:
        [B] int32 final tokens, [N] int32 emitted tokens in row order.
    """
    emitted = torch.empty(len(batch.target), dtype=torch.int32, device=batch.draft_lengths.device)
    return _draw(batch, target_stats, draft_stats, decision, emitted), emitted


def _draw(
    batch: Batch, target_stats: RowStats, draft_stats: RowStats, decision: Decision, emitted: Tensor | None
) -> Tensor:
    requests, device = len(batch.draft_lengths), batch.draft_lengths.device
    target_tiles, draft_tiles = target_stats.tile_max.shape[1], draft_stats.tile_max.shape[1]
    tokens = torch.empty(requests, dtype=torch.int32, device=device)
    masses = torch.empty((requests, target_tiles), dtype=torch.float64, device=device)
    target_at, draft_at = batch.target.pointers(device), batch.draft.pointers(device)
    maps, view = stacked_maps(batch), view_of(batch.target, device)
    variant = {
        "TARGET_DTYPE": TRITON_DTYPES[batch.target.dtype],
        "DRAFT_DTYPE": TRITON_DTYPES[batch.draft.dtype],
        "VIEW": view.flags,
        "TARGET_TILES": power_of_two(target_tiles),
        "DRAFT_TILES": power_of_two(draft_tiles),
        "HAS_MAPS": bool(batch.inverse_maps),
    }
    if len(batch.draft_token_ids):  # without drafts there is nothing to reject
        _tile_masses_kernel[(requests * target_tiles,)](
            batch.cu_num_logits,
            batch.cu_drafts,
            batch.draft_token_ids,
            batch.draft_row,
            batch.draft_map,
            maps,
            batch.temperature,
            batch.draft_temperature,
            decision.num_accepted,
            decision.draw_kind,
            decision.scale,
            target_at.address,
            target_stats.tile_max,
            target_stats.tile_sum,
            draft_at.address,
            draft_at.width,
            draft_stats.tile_max,
            draft_stats.tile_sum,
            masses,
            *view.arguments,
            batch.vocab_size,
            target_tiles,
            draft_tiles,
            **variant,
            num_warps=_TILE_WARPS,
        )
    _pick_kernel[(requests,)](
        batch.draft_lengths,
        batch.cu_num_logits,
        batch.cu_drafts,
        batch.draft_token_ids,
        batch.draft_row,
        batch.draft_map,
        maps,
        batch.temperature,
        batch.draft_temperature,
        batch.seed,
        batch.position,
        decision.num_accepted,
        decision.draw_kind,
        decision.scale,
        target_at.address,
        target_stats.tile_max,
        target_stats.tile_sum,
        target_stats.tile_argmax,
        draft_at.address,
        draft_at.width,
        draft_stats.tile_max,
        draft_stats.tile_sum,
        masses,
        tokens,
        emitted if emitted is not None else placeholder(tokens, torch.int32),
        *view.arguments,
        batch.vocab_size,
        target_tiles,
        draft_tiles,
        **variant,
        FLATTEN=emitted is not None,
        num_warps=_PICK_WARPS,
    )
    return tokens
