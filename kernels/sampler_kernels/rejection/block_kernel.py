"""Block verification (Sun et al. 2403.10444) in three launches: factors, residual masses, the run that stands."""

import torch
import triton
import triton.language as tl

from sampler_kernels.batch import Batch, MethodCode
from sampler_kernels.device.compile import TRITON_DTYPES, kernel, power_of_two
from sampler_kernels.device.elements import TILE
from sampler_kernels.device.maps import stacked_maps
from sampler_kernels.device.probability import any_illegal, draft_probability, probability
from sampler_kernels.device.sums import effective
from sampler_kernels.device.view import view_of
from sampler_kernels.draw.kernel import joined, residual_tile_mass
from sampler_kernels.layout import MAX_DRAFT_TOKENS
from sampler_kernels.outcome import Decision, DrawKind, RowStats
from sampler_kernels.philox.kernel import ACCEPT, uniform_of
from sampler_kernels.rejection.rules_kernel import row_request
from sampler_kernels.result import Status

_POSITIONS = 8
"""Rows whose tiles are joined together."""
_WARPS = 4

_MOST_DRAFTS = tl.constexpr(MAX_DRAFT_TOKENS)
_BLOCK = tl.constexpr(int(MethodCode.BLOCK))
_OK = tl.constexpr(int(Status.OK))
_INVALID_LOGITS = tl.constexpr(int(Status.INVALID_LOGITS))
_INVALID_DRAFT_TOKEN = tl.constexpr(int(Status.INVALID_DRAFT_TOKEN))
_NOTHING = tl.constexpr(int(DrawKind.NOTHING))
_TARGET = tl.constexpr(int(DrawKind.TARGET))
_RESIDUAL = tl.constexpr(int(DrawKind.RESIDUAL))
_NEVER = tl.constexpr(MAX_DRAFT_TOKENS + 1)
"""A row index that no request has."""


@triton.jit
def _drawn(first_draft, drafts, draft_token_ids_ptr):
    """k: draft tokens before the first placeholder."""
    j = tl.arange(0, _MOST_DRAFTS)
    token = tl.load(draft_token_ids_ptr + first_draft + j, mask=j < drafts, other=-1)
    return tl.minimum(tl.min(tl.where(token < 0, j, _NEVER), axis=0), drafts)


@kernel
def _factors_kernel(
    draft_lengths_ptr,
    cu_num_logits_ptr,
    cu_drafts_ptr,
    draft_token_ids_ptr,
    draft_row_ptr,
    draft_map_ptr,
    maps_ptr,
    method_ptr,
    temperature_ptr,
    draft_temperature_ptr,
    target_address_ptr,
    target_max_ptr,
    target_sum_ptr,
    draft_address_ptr,
    draft_width_ptr,
    draft_max_ptr,
    draft_sum_ptr,
    factors_ptr,
    status_ptr,
    bad_row_ptr,
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
    POSITIONS: tl.constexpr,
):
    """The factors c_0 .. c_k of one request of method block, and whether one of its rows 0 .. k is bad.

    In: as the accept tests of other methods. Out: factors_ptr [N] float64, c_i at row i; status_ptr and bad_row_ptr [B]
    int32. The grid walks requests; rows are looked at POSITIONS at a time, and their ratios multiplied one by one.
    """
    request = tl.program_id(0)
    if tl.load(method_ptr + request) != _BLOCK:
        return
    drafts = tl.load(draft_lengths_ptr + request)
    first_row = tl.load(cu_num_logits_ptr + request)
    first_draft = tl.load(cu_drafts_ptr + request)
    temperature = tl.load(temperature_ptr + request)
    draft_temperature = tl.load(draft_temperature_ptr + request)
    illegal = any_illegal(first_draft, drafts, draft_token_ids_ptr)
    k = _drawn(first_draft, drafts, draft_token_ids_ptr)
    k_read = tl.where(illegal, -1, k)

    c = temperature * 0.0 + 1.0
    tl.store(factors_ptr + first_row, c)
    bad_row = drafts * 0 + _NEVER
    each = tl.arange(0, POSITIONS)
    for start in range(0, k_read + 1, POSITIONS):
        j = start + each
        token = tl.load(draft_token_ids_ptr + first_draft + j, mask=j < k, other=-1)
        in_vocabulary = (token >= 0) & (token < vocab_size)
        needed = j <= k
        p, bad, _, _ = probability(
            first_row + j,
            tl.where(in_vocabulary, token, -1),
            needed,
            temperature,
            target_address_ptr,
            target_max_ptr,
            target_sum_ptr,
            view_ptr,
            cut_value_ptr,
            cut_id_ptr,
            target_tiles,
            TARGET_DTYPE,
            VIEW,
            POSITIONS,
            TARGET_TILES,
        )
        q, draft_bad = draft_probability(
            token,
            first_draft + j,
            token >= 0,
            draft_temperature,
            draft_row_ptr,
            draft_map_ptr,
            maps_ptr,
            draft_address_ptr,
            draft_width_ptr,
            draft_max_ptr,
            draft_sum_ptr,
            vocab_size,
            draft_tiles,
            DRAFT_DTYPE,
            HAS_MAPS,
            POSITIONS,
            DRAFT_TILES,
        )
        bad_row = tl.minimum(bad_row, tl.min(tl.where(needed & (bad | draft_bad), j, _NEVER), axis=0))
        # p over 0 is infinite, so it is divided by 1 and said to be.
        infinite = (q == 0.0) & (p > 0.0)
        ratio = tl.where(p > 0.0, p / tl.where(q > 0.0, q, 1.0), 0.0)
        for i in tl.static_range(POSITIONS):
            here = tl.sum(tl.where(each == i, ratio, 0.0), axis=0)
            is_infinite = tl.max(tl.where((each == i) & infinite, 1, 0), axis=0) > 0
            grown = tl.where(is_infinite, 1.0, tl.minimum(c * here, 1.0))
            c = tl.where(c > 0.0, grown, 0.0)
            tl.store(factors_ptr + first_row + start + i + 1, c, mask=start + i + 1 <= k)
    good = bad_row == _NEVER
    status = tl.where(illegal, _INVALID_DRAFT_TOKEN, tl.where(good, _OK, _INVALID_LOGITS))
    tl.store(status_ptr + request, status)
    tl.store(bad_row_ptr + request, tl.where(status == _INVALID_LOGITS, bad_row, -1))


@triton.jit
def _needs_mass(c, u, i, k):
    """Whether the residual mass at row i decides about it: S_i and so h_i is at most c_i, and 1 where c_i is."""
    return (i > 0) & (i < k) & (c < 1.0) & (u < c)


@kernel
def _masses_kernel(
    row_request_ptr,
    draft_lengths_ptr,
    cu_num_logits_ptr,
    cu_drafts_ptr,
    draft_token_ids_ptr,
    draft_row_ptr,
    draft_map_ptr,
    maps_ptr,
    method_ptr,
    temperature_ptr,
    draft_temperature_ptr,
    seed_ptr,
    position_ptr,
    target_address_ptr,
    target_max_ptr,
    target_sum_ptr,
    draft_address_ptr,
    draft_width_ptr,
    draft_max_ptr,
    draft_sum_ptr,
    factors_ptr,
    status_ptr,
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
    """One tile of the mass of max(c_i p - q, 0) at one row, where that decides.

    In: row_request_ptr [N] int32; otherwise as the kernel of the factors, with what it wrote.
    Out: masses_ptr [N, target_tiles] float64, as a residual's; else not written.
    The grid is one axis over (row, tile), tile fastest, like that of the draw.
    """
    row = tl.program_id(0) // target_tiles
    tile = tl.program_id(0) % target_tiles
    request = tl.load(row_request_ptr + row)
    if tl.load(method_ptr + request) != _BLOCK:
        return
    if tl.load(status_ptr + request) != _OK:
        return
    i = row - tl.load(cu_num_logits_ptr + request)
    first_draft = tl.load(cu_drafts_ptr + request)
    k = _drawn(first_draft, tl.load(draft_lengths_ptr + request), draft_token_ids_ptr)
    c = tl.load(factors_ptr + row, mask=i <= k, other=0.0)
    u = uniform_of(tl.load(seed_ptr + request), tl.load(position_ptr + request) + i - 1, ACCEPT, i - 1)
    if _needs_mass(c, u, i, k) == 0:
        return
    place = first_draft + i
    draft_row = tl.load(draft_row_ptr + place)
    residual_tile_mass(
        request,
        row,
        place,
        tile,
        c,
        tl.load(draft_token_ids_ptr + place),
        draft_row,
        masses_ptr + row.to(tl.int64) * target_tiles + tile,
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
def _residual_mass(
    row,
    place,
    c,
    temperature,
    draft_token_ids_ptr,
    draft_row_ptr,
    tile_max_ptr,
    tile_sum_ptr,
    masses_ptr,
    tiles,
    TILES: tl.constexpr,
):
    """float64: S_i at a row whose tiles the masses kernel has summed."""
    draft_row = tl.load(draft_row_ptr + place)
    rejected = tl.load(draft_token_ids_ptr + place)
    maximum, masses, total, tile_max = joined(row, draft_row < 0, temperature, tile_max_ptr, tile_sum_ptr, tiles, TILES)
    each = tl.arange(0, TILES)
    # Beside a point mass only the tile of its token was summed anew.
    summed = (each < tl.where(draft_row >= 0, tiles, 0)) | ((each == rejected // TILE) & (each < tiles))
    again = tl.load(masses_ptr + row.to(tl.int64) * tiles + each, mask=summed, other=0.0)
    relative = tl.exp((tile_max.to(tl.float64) - maximum.to(tl.float64)) / effective(temperature))
    left = tl.where(summed, again * relative, masses)
    beside = tl.sum(tl.where(each < tiles, again, 0.0), axis=0)
    return tl.where(draft_row >= 0, beside, c * tl.sum(left, axis=0) / tl.where(total > 0.0, total, 1.0))


@kernel
def _decide_kernel(
    draft_lengths_ptr,
    cu_num_logits_ptr,
    cu_drafts_ptr,
    draft_token_ids_ptr,
    draft_row_ptr,
    method_ptr,
    temperature_ptr,
    seed_ptr,
    position_ptr,
    target_max_ptr,
    target_sum_ptr,
    factors_ptr,
    masses_ptr,
    status_ptr,
    num_accepted_ptr,
    draw_kind_ptr,
    scale_ptr,
    target_tiles,
    TARGET_TILES: tl.constexpr,
):
    """The accepted length of one request: the largest i with u_i < h_i.

    In: columns of ``Batch``; what the two kernels before wrote. Out: num_accepted_ptr, draw_kind_ptr [B] int32,
    scale_ptr [B] float64. The grid walks requests; rows are asked from the last one on, until one stands.
    """
    request = tl.program_id(0)
    if tl.load(method_ptr + request) != _BLOCK:
        return
    ok = tl.load(status_ptr + request) == _OK
    first_row = tl.load(cu_num_logits_ptr + request)
    first_draft = tl.load(cu_drafts_ptr + request)
    temperature = tl.load(temperature_ptr + request)
    seed = tl.load(seed_ptr + request)
    position = tl.load(position_ptr + request)
    k = _drawn(first_draft, tl.load(draft_lengths_ptr + request), draft_token_ids_ptr)
    i = tl.where(ok, k, 0)
    searching = i > 0
    while searching:
        row = first_row + i
        c = tl.load(factors_ptr + row)
        u = uniform_of(seed, position + i - 1, ACCEPT, i - 1)
        h = c
        if _needs_mass(c, u, i, k):
            mass = _residual_mass(
                row,
                first_draft + i,
                c,
                temperature,
                draft_token_ids_ptr,
                draft_row_ptr,
                target_max_ptr,
                target_sum_ptr,
                masses_ptr,
                target_tiles,
                TARGET_TILES,
            )
            h = mass / (mass + 1.0 - c)
        stands = u < h
        i = tl.where(stands, i, i - 1)
        searching = (stands == 0) & (i > 0)
    kind = tl.where(i == k, _TARGET, _RESIDUAL)
    tl.store(num_accepted_ptr + request, i)
    tl.store(draw_kind_ptr + request, tl.where(ok, kind, _NOTHING))
    tl.store(scale_ptr + request, tl.where(ok, tl.load(factors_ptr + first_row + i), 1.0))


def block(batch: Batch, target_stats: RowStats, draft_stats: RowStats, decision: Decision) -> None:
    """Judges requests of method block. See :func:`sampler_kernels.rejection.block.block`.

    Args:
        batch: The step.
        target_stats: Of its target rows.
        draft_stats: Of its draft rows.
        decision: Written to where a request is of method block.
    """
    rows, requests, device = len(batch.target), len(batch.draft_lengths), batch.draft_lengths.device
    target_tiles, draft_tiles = target_stats.tile_max.shape[1], draft_stats.tile_max.shape[1]
    target_at, draft_at = batch.target.pointers(device), batch.draft.pointers(device)
    factors = torch.empty(rows, dtype=torch.float64, device=device)
    masses = torch.empty((rows, target_tiles), dtype=torch.float64, device=device)
    view = view_of(batch.target, device)
    drafts = (batch.draft_token_ids, batch.draft_row, batch.draft_map, stacked_maps(batch))
    target_rows = (target_at.address, target_stats.tile_max, target_stats.tile_sum)
    draft_rows = (draft_at.address, draft_at.width, draft_stats.tile_max, draft_stats.tile_sum)
    sizes = (batch.vocab_size, target_tiles, draft_tiles)
    variant = {
        "TARGET_DTYPE": TRITON_DTYPES[batch.target.dtype],
        "DRAFT_DTYPE": TRITON_DTYPES[batch.draft.dtype],
        "VIEW": view.flags,
        "TARGET_TILES": power_of_two(target_tiles),
        "DRAFT_TILES": power_of_two(draft_tiles),
        "HAS_MAPS": bool(batch.inverse_maps),
        "num_warps": _WARPS,
    }
    _factors_kernel[(requests,)](
        batch.draft_lengths,
        batch.cu_num_logits,
        batch.cu_drafts,
        *drafts,
        batch.method,
        batch.temperature,
        batch.draft_temperature,
        *target_rows,
        *draft_rows,
        factors,
        decision.status,
        decision.bad_row,
        *view.arguments,
        *sizes,
        **variant,
        POSITIONS=_POSITIONS,
    )
    _masses_kernel[(rows * target_tiles,)](
        row_request(batch),
        batch.draft_lengths,
        batch.cu_num_logits,
        batch.cu_drafts,
        *drafts,
        batch.method,
        batch.temperature,
        batch.draft_temperature,
        batch.seed,
        batch.position,
        *target_rows,
        *draft_rows,
        factors,
        decision.status,
        masses,
        *view.arguments,
        *sizes,
        **variant,
    )
    _decide_kernel[(requests,)](
        batch.draft_lengths,
        batch.cu_num_logits,
        batch.cu_drafts,
        batch.draft_token_ids,
        batch.draft_row,
        batch.method,
        batch.temperature,
        batch.seed,
        batch.position,
        target_stats.tile_max,
        target_stats.tile_sum,
        factors,
        masses,
        decision.status,
        decision.num_accepted,
        decision.draw_kind,
        decision.scale,
        target_tiles,
        TARGET_TILES=power_of_two(target_tiles),
        num_warps=_WARPS,
    )
