"""Acceptance probabilities, for those who want to see them: they are reported, and decide nothing."""

import math

import torch
import triton.language as tl
from torch import Tensor

from sampler_kernels.batch import Batch, MethodCode
from sampler_kernels.device.compile import TRITON_DTYPES, kernel, power_of_two
from sampler_kernels.device.maps import stacked_maps
from sampler_kernels.device.probability import argmax_of, draft_probability, probability
from sampler_kernels.device.view import view_of
from sampler_kernels.outcome import Decision, RowStats
from sampler_kernels.result import Status

_POSITIONS = 8
"""Rows looked at together."""
_WARPS = 4

_GREEDY = tl.constexpr(int(MethodCode.GREEDY))
_OK = tl.constexpr(int(Status.OK))


@kernel
def _acceptance_kernel(
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
    wants_acceptance_ptr,
    num_accepted_ptr,
    status_ptr,
    target_address_ptr,
    target_max_ptr,
    target_sum_ptr,
    target_argmax_ptr,
    draft_address_ptr,
    draft_width_ptr,
    draft_max_ptr,
    draft_sum_ptr,
    acceptance_ptr,
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
    """min(1, p/q) of the draft tokens of one request, up to the first that did not stand.

    In: as the accept tests, with the decision that they led to. Out: acceptance_ptr [D] float64, NaN before.
    The grid walks requests, a program POSITIONS of its rows at a time.
    """
    request = tl.program_id(0)
    if tl.load(wants_acceptance_ptr + request) == 0:
        return
    if tl.load(status_ptr + request) != _OK:
        return
    drafts = tl.load(draft_lengths_ptr + request)
    first_row = tl.load(cu_num_logits_ptr + request)
    first_draft = tl.load(cu_drafts_ptr + request)
    temperature = tl.load(temperature_ptr + request)
    greedy = tl.load(method_ptr + request) == _GREEDY
    asked = tl.minimum(tl.load(num_accepted_ptr + request) + 1, drafts)
    for start in range(0, asked, POSITIONS):
        j = start + tl.arange(0, POSITIONS)
        token = tl.load(draft_token_ids_ptr + first_draft + j, mask=j < asked, other=-1)
        in_vocabulary = (token >= 0) & (token < vocab_size)
        p, _, tile_max, maximum = probability(
            first_row + j,
            tl.where(in_vocabulary, token, -1),
            j < asked,
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
        compared = j < tl.where(greedy, asked, 0)
        argmax = argmax_of(first_row + j, compared, tile_max, maximum, target_argmax_ptr, target_tiles, TARGET_TILES)
        p = tl.where(compared, tl.where(argmax == token, 1.0, 0.0), p)
        q, _ = draft_probability(
            token,
            first_draft + j,
            token >= 0,
            tl.load(draft_temperature_ptr + request),
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
        # 0 where p is, and else 1 where q is 0.
        quotient = tl.where(p < q, p / tl.where(q > 0.0, q, 1.0), tl.where(p > 0.0, 1.0, 0.0))
        tl.store(acceptance_ptr + first_draft + j, quotient, mask=token >= 0)


def acceptance(batch: Batch, target_stats: RowStats, draft_stats: RowStats, decision: Decision) -> Tensor:
    """Acceptance probabilities. See :func:`sampler_kernels.rejection.acceptance.acceptance`.

    Returns:
        [D] float64, NaN where there is nothing to report.
    """
    assert batch.wants_acceptance is not None, "nobody wants to see acceptance probabilities"
    requests, device = len(batch.draft_lengths), batch.draft_lengths.device
    out = torch.full((len(batch.draft_token_ids),), math.nan, dtype=torch.float64, device=device)
    target_at, draft_at, view = (
        batch.target.pointers(device),
        batch.draft.pointers(device),
        view_of(batch.target, device),
    )
    target_tiles, draft_tiles = target_stats.tile_max.shape[1], draft_stats.tile_max.shape[1]
    _acceptance_kernel[(requests,)](
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
        batch.wants_acceptance,
        decision.num_accepted,
        decision.status,
        target_at.address,
        target_stats.tile_max,
        target_stats.tile_sum,
        target_stats.tile_argmax,
        draft_at.address,
        draft_at.width,
        draft_stats.tile_max,
        draft_stats.tile_sum,
        out,
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
        POSITIONS=_POSITIONS,
        num_warps=_WARPS,
    )
    return out
