"""The accept tests of a request, eight draft positions at a time."""

from dataclasses import replace

import torch
import triton.language as tl

from sampler_kernels.batch import Batch, MethodCode
from sampler_kernels.device.compile import TRITON_DTYPES, kernel, placeholder, power_of_two
from sampler_kernels.device.maps import stacked_maps
from sampler_kernels.device.probability import any_illegal, argmax_of, draft_probability, probability
from sampler_kernels.device.view import view_of
from sampler_kernels.outcome import Decision, DrawKind, RowStats
from sampler_kernels.philox.kernel import ACCEPT, uniform_of
from sampler_kernels.rejection.acceptance_kernel import acceptance
from sampler_kernels.rejection.block_kernel import block
from sampler_kernels.rejection.rules_kernel import JUDGED, judge
from sampler_kernels.result import Status

_POSITIONS = 8
"""Rows judged together: one round for the usual 1 to 7 draft tokens, at 32 tiles a row 256 exps on each side."""
_WARPS = 4

_GREEDY = tl.constexpr(int(MethodCode.GREEDY))
_STANDARD = tl.constexpr(int(MethodCode.STANDARD))
_BLOCK = tl.constexpr(int(MethodCode.BLOCK))
_OK = tl.constexpr(int(Status.OK))
_INVALID_LOGITS = tl.constexpr(int(Status.INVALID_LOGITS))
_INVALID_DRAFT_TOKEN = tl.constexpr(int(Status.INVALID_DRAFT_TOKEN))
_NOTHING = tl.constexpr(int(DrawKind.NOTHING))
_ARGMAX = tl.constexpr(int(DrawKind.ARGMAX))
_TARGET = tl.constexpr(int(DrawKind.TARGET))
_RESIDUAL = tl.constexpr(int(DrawKind.RESIDUAL))


@kernel
def _rejection_kernel(
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
    target_argmax_ptr,
    draft_address_ptr,
    draft_width_ptr,
    draft_max_ptr,
    draft_sum_ptr,
    num_accepted_ptr,
    status_ptr,
    bad_row_ptr,
    draw_kind_ptr,
    scale_ptr,
    verdicts_ptr,
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
    HAS_VERDICTS: tl.constexpr,
    HAS_BLOCKS: tl.constexpr,
    POSITIONS: tl.constexpr,
):
    """One request: which of its draft tokens stand, and where the final token comes from.

    In: the columns of ``Batch`` by their names ([B], [B+1], [D]; maps_ptr [maps, V] int32); of target and draft rows
    address_ptr [R] int64, width_ptr [R] int32, max_ptr and sum_ptr [R, tiles] float32, argmax_ptr [R, tiles] int32;
    view_ptr, cut_value_ptr and cut_id_ptr as for ``process``; verdicts_ptr [N] int32, whether the draft token of a row
    stands, of requests that are neither greedy nor standard; those of method block are left to others.
    Out: the columns of ``Decision`` by their names, [B].

    The grid walks requests. A program joins the tiles of POSITIONS rows at once, so that a usual request costs one
    round of dependent loads however many draft tokens it has, and takes the next POSITIONS only while all stand.
    """
    request = tl.program_id(0)
    drafts = tl.load(draft_lengths_ptr + request)
    first_row = tl.load(cu_num_logits_ptr + request)
    first_draft = tl.load(cu_drafts_ptr + request)
    temperature = tl.load(temperature_ptr + request)
    draft_temperature = tl.load(draft_temperature_ptr + request)
    method = tl.load(method_ptr + request)
    if HAS_BLOCKS:
        if method == _BLOCK:
            return
    greedy = method == _GREEDY
    standard = method == _STANDARD
    seed = tl.load(seed_ptr + request)
    position = tl.load(position_ptr + request)
    illegal = any_illegal(first_draft, drafts, draft_token_ids_ptr)

    # What is not read at all has no rows to be read.
    drafts_read = tl.where(greedy | illegal, 0, drafts)
    start = drafts * 0
    end = drafts + 1  # the row of the final token once it is known, until then past the bonus row
    end_bad = drafts * 0
    end_drafted = drafts * 0
    while (start <= drafts) & (end > drafts):
        j = start + tl.arange(0, POSITIONS)
        needed = j <= drafts
        token = tl.load(draft_token_ids_ptr + first_draft + j, mask=j < drafts, other=-1)
        in_vocabulary = (token >= 0) & (token < vocab_size)
        p, bad, tile_max, maximum = probability(
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

        # Nothing was drawn at a placeholder, so nothing is compared with the draft row there.
        q, draft_bad = draft_probability(
            token,
            first_draft + j,
            (j < drafts_read) & (token >= 0),
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
        bad = needed & (bad | draft_bad)
        compared = j <= tl.where(greedy, drafts, -1)
        argmax = argmax_of(first_row + j, compared, tile_max, maximum, target_argmax_ptr, target_tiles, TARGET_TILES)

        u = uniform_of(seed, position + j, ACCEPT, j)
        stands = tl.where(greedy, token == argmax, u * q < p)
        if HAS_VERDICTS:
            verdict = tl.load(verdicts_ptr + first_row + j, mask=needed, other=0) != 0
            stands = tl.where(greedy | standard, stands, verdict)
        stands = stands & in_vocabulary & (bad == 0)
        # The bonus row has no token, so the chain ends there at the latest.
        end = tl.min(tl.where(needed & (stands == 0), j, end), axis=0)
        end_bad = tl.max(((j == end) & bad).to(tl.int32), axis=0)
        end_drafted = tl.max(((j == end) & (token >= 0)).to(tl.int32), axis=0)
        start += POSITIONS

    status = tl.where(illegal, _INVALID_DRAFT_TOKEN, tl.where(end_bad > 0, _INVALID_LOGITS, _OK))
    kind = tl.where(greedy, _ARGMAX, tl.where(end_drafted > 0, _RESIDUAL, _TARGET))
    if HAS_VERDICTS:  # other methods draw from p, or take the argmax
        own_law = tl.where(temperature == 0, _ARGMAX, _TARGET)
        kind = tl.where(greedy | standard, kind, own_law)
    tl.store(num_accepted_ptr + request, tl.where(status == _OK, end, 0))
    tl.store(status_ptr + request, status)
    tl.store(bad_row_ptr + request, tl.where(status == _INVALID_LOGITS, end, -1))
    tl.store(draw_kind_ptr + request, tl.where(status == _OK, kind, _NOTHING))
    tl.store(scale_ptr + request, 1.0)


def rejection(batch: Batch, target_stats: RowStats, draft_stats: RowStats) -> Decision:
    """Decides which draft tokens stand. See :func:`sampler_kernels.rejection.reference.rejection`."""
    requests, device = len(batch.draft_lengths), batch.draft_lengths.device
    decision = _allocate(requests, device)
    target_at, draft_at = batch.target.pointers(device), batch.draft.pointers(device)
    target_tiles, draft_tiles = target_stats.tile_max.shape[1], draft_stats.tile_max.shape[1]
    view = view_of(batch.target, device)
    methods = (
        batch.methods if batch.methods is not None else frozenset(MethodCode(m) for m in set(batch.method.tolist()))
    )
    judged, blocks = not methods.isdisjoint(JUDGED), MethodCode.BLOCK in methods
    verdicts = judge(batch, target_stats) if judged else placeholder(batch.method, torch.int32)
    _rejection_kernel[(requests,)](
        batch.draft_lengths,
        batch.cu_num_logits,
        batch.cu_drafts,
        batch.draft_token_ids,
        batch.draft_row,
        batch.draft_map,
        stacked_maps(batch),
        batch.method,
        batch.temperature,
        batch.draft_temperature,
        batch.seed,
        batch.position,
        target_at.address,
        target_stats.tile_max,
        target_stats.tile_sum,
        target_stats.tile_argmax,
        draft_at.address,
        draft_at.width,
        draft_stats.tile_max,
        draft_stats.tile_sum,
        decision.num_accepted,
        decision.status,
        decision.bad_row,
        decision.draw_kind,
        decision.scale,
        verdicts,
        *view.arguments,
        batch.vocab_size,
        target_tiles,
        draft_tiles,
        TARGET_DTYPE=TRITON_DTYPES[batch.target.dtype],
        DRAFT_DTYPE=TRITON_DTYPES[batch.draft.dtype],
        VIEW=view.flags,
        TARGET_TILES=power_of_two(target_tiles),
        DRAFT_TILES=power_of_two(draft_tiles),
        HAS_MAPS=bool(batch.inverse_maps),
        HAS_VERDICTS=judged,
        HAS_BLOCKS=blocks,
        POSITIONS=_POSITIONS,
        num_warps=_WARPS,
    )
    if blocks:
        block(batch, target_stats, draft_stats, decision)
    if batch.wants_acceptance is not None:
        return replace(decision, acceptance=acceptance(batch, target_stats, draft_stats, decision))
    return decision


def _allocate(requests: int, device: torch.device) -> Decision:
    """Room for a decision."""
    num_accepted, status, bad_row, draw_kind = (
        torch.empty(requests, dtype=torch.int32, device=device) for _ in range(4)
    )
    return Decision(
        num_accepted=num_accepted,
        status=status,
        bad_row=bad_row,
        draw_kind=draw_kind,
        scale=torch.empty(requests, dtype=torch.float64, device=device),
    )
