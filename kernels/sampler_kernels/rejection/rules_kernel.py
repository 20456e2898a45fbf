"""Methods that judge a row by itself: one verdict a row, before the accept tests walk a request's rows in order.

Rows after a rejection are judged too. They run beside the others, and a second launch would cost more than they do.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sampler_kernels.batch import Batch, LossyColumns, MethodCode
from sampler_kernels.device.compile import TRITON_DTYPES, kernel, placeholder, power_of_two
from sampler_kernels.device.elements import GROUP, GROUPS, load_at, load_tile
from sampler_kernels.device.sums import effective, exponent_scale, pair_sum, pair_sum_rows
from sampler_kernels.device.view import process, process_tile, view_of
from sampler_kernels.draw.kernel import joined, token_at
from sampler_kernels.outcome import RowStats
from sampler_kernels.philox.kernel import ACCEPT, DRAW, uniform_of
from sampler_kernels.topk_logprobs.kernel import count_reaching

JUDGED = frozenset({MethodCode.STRICT, MethodCode.SYNTHETIC, MethodCode.TYPICAL, MethodCode.RELAXED})
"""Methods that have verdicts."""

_WARPS = 4

_STRICT = tl.constexpr(int(MethodCode.STRICT))
_SYNTHETIC = tl.constexpr(int(MethodCode.SYNTHETIC))
_TYPICAL = tl.constexpr(int(MethodCode.TYPICAL))
_RELAXED = tl.constexpr(int(MethodCode.RELAXED))


@triton.jit
def _entropy(
    address,
    row,
    maximum,
    total,
    temperature,
    tile_max_ptr,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    vocab_size,
    tiles,
    DTYPE: tl.constexpr,
    VIEW: tl.constexpr,
):
    """float64, in nats, of the processed row.

    With z = (x - max) / T and Z the sum of exp(z) it is ln Z - sum of z exp(z) / Z. A tile is summed in float32, tiles
    in float64. Exponents stop at -150, where 2^z is 0, for -inf times 0 would be NaN.
    """
    scale = exponent_scale(temperature)
    weighted = total * 0.0
    for tile in range(tiles):
        if tl.load(tile_max_ptr + row * tiles + tile) > -float("inf"):
            x = load_tile(address, vocab_size, tile, True, DTYPE)
            x = process_tile(x, vocab_size, tile, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW)
            exponent = tl.maximum((x - maximum) * scale, -150.0)
            terms = pair_sum_rows(tl.exp2(exponent) * exponent, GROUPS, GROUP)
            weighted += pair_sum(terms, GROUPS).to(tl.float64)
    return tl.log(total) - 0.6931471805599453 * weighted / total


@triton.jit
def _rank(
    address,
    row,
    logit,
    tile_max_ptr,
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
    """int32: how many elements of the processed row are at least ``logit``, which is above -inf."""
    count = tiles * 0
    for tile in range(tiles):
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
    return count


@kernel
def _judge_kernel(
    row_request_ptr,
    draft_lengths_ptr,
    cu_num_logits_ptr,
    cu_drafts_ptr,
    draft_token_ids_ptr,
    method_ptr,
    temperature_ptr,
    seed_ptr,
    position_ptr,
    synthetic_rate_ptr,
    typical_epsilon_ptr,
    typical_delta_ptr,
    relaxed_top_n_ptr,
    relaxed_margin_ptr,
    address_ptr,
    width_ptr,
    tile_max_ptr,
    tile_sum_ptr,
    group_max_ptr,
    verdicts_ptr,
    view_ptr,
    cut_value_ptr,
    cut_id_ptr,
    vocab_size,
    tiles,
    groups,
    DTYPE: tl.constexpr,
    VIEW: tl.constexpr,
    TILES: tl.constexpr,
    LOSSY: tl.constexpr,
):
    """One row: whether its draft token stands. Of a bad row, and where no token below V was drawn, anything is said.

    In: row_request_ptr [N] int32; columns of ``Batch`` and, if LOSSY, ``LossyColumns`` by their names; of the target
    rows address_ptr [N] int64, width_ptr [N] int32, tile_max_ptr and tile_sum_ptr [N, tiles] float32, group_max_ptr [N,
    groups] float32; view_ptr, cut_value_ptr and cut_id_ptr as for ``process``.
    Out: verdicts_ptr [N] int32, 0 or 1, of the methods that have verdicts.

    The grid walks rows. Typical reads its row whole, in one program: the row is in the cache, and other rows are read
    beside it.
    """
    row = tl.program_id(0)
    request = tl.load(row_request_ptr + row)
    method = tl.load(method_ptr + request)
    j = row - tl.load(cu_num_logits_ptr + request)
    judged = (method == _STRICT) | (method == _SYNTHETIC) | (method == _TYPICAL) | (method == _RELAXED)
    if judged == 0:
        return
    place = tl.load(cu_drafts_ptr + request) + j
    has_draft = j < tl.load(draft_lengths_ptr + request)
    token = tl.load(draft_token_ids_ptr + place, mask=has_draft, other=-1)
    if (token < 0) | (token >= vocab_size):
        return
    seed = tl.load(seed_ptr + request)
    position = tl.load(position_ptr + request) + j
    temperature = tl.load(temperature_ptr + request)
    maximum, masses, total, tile_max = joined(row, True, temperature, tile_max_ptr, tile_sum_ptr, tiles, TILES)
    stands = token < 0
    if method == _STRICT:
        drawn = token_at(
            uniform_of(seed, position, DRAW, 0),
            row,
            masses,
            tile_max,
            maximum,
            total,
            temperature,
            token * 0 - 1,
            token * 0 - 1,
            total * 0.0 + 1.0,
            token * 0 - 1,
            temperature,
            address_ptr,
            address_ptr,
            address_ptr,
            width_ptr,
            tile_max_ptr,
            tile_sum_ptr,
            view_ptr,
            cut_value_ptr,
            cut_id_ptr,
            vocab_size,
            tiles,
            DTYPE,
            DTYPE,
            VIEW,
            TILES,
            TILES,
            False,
        )
        stands = drawn == token
    if LOSSY:
        address = tl.load(address_ptr + row)
        logit = load_at(address, token, token < vocab_size, DTYPE)
        logit = process(logit, token, token < vocab_size, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW)
        below = (maximum.to(tl.float64) - logit.to(tl.float64)) / effective(temperature)
        if method == _SYNTHETIC:
            stands = uniform_of(seed, position, ACCEPT, j) < tl.load(synthetic_rate_ptr + place)
        if method == _TYPICAL:
            entropy = _entropy(
                address,
                row,
                maximum,
                total,
                temperature,
                tile_max_ptr,
                view_ptr,
                cut_value_ptr,
                cut_id_ptr,
                vocab_size,
                tiles,
                DTYPE,
                VIEW,
            )
            bound = tl.load(typical_delta_ptr + request) * tl.exp(-entropy)
            stands = tl.exp(-below) / total > tl.minimum(tl.load(typical_epsilon_ptr + request), bound)
        if method == _RELAXED:
            # An infinite margin and a top n beyond V let nothing stand that a mask or filter has dropped.
            if (logit > -float("inf")) & (below <= tl.load(relaxed_margin_ptr + request)):
                rank = _rank(
                    address,
                    row,
                    logit,
                    tile_max_ptr,
                    group_max_ptr,
                    view_ptr,
                    cut_value_ptr,
                    cut_id_ptr,
                    vocab_size,
                    tiles,
                    groups,
                    DTYPE,
                    VIEW,
                )
                stands = rank <= tl.load(relaxed_top_n_ptr + request)
    tl.store(verdicts_ptr + row, stands.to(tl.int32))


def judge(batch: Batch, target_stats: RowStats) -> Tensor:
    """Verdicts about the draft tokens of requests of strict, synthetic, typical and relaxed.

    Args:
        batch: The step.
        target_stats: Of its target rows.

    Returns:
        [N] int32, 1 where the draft token of a row stands by its request's method; garbage for other methods.
    """
    rows, device = len(batch.target), batch.draft_lengths.device
    verdicts = torch.empty(rows, dtype=torch.int32, device=device)
    at, view, lossy = batch.target.pointers(device), view_of(batch.target, device), _lossy(batch)
    tiles, groups = target_stats.tile_max.shape[1], target_stats.group_max.shape[1]
    _judge_kernel[(rows,)](
        row_request(batch),
        batch.draft_lengths,
        batch.cu_num_logits,
        batch.cu_drafts,
        batch.draft_token_ids,
        batch.method,
        batch.temperature,
        batch.seed,
        batch.position,
        lossy.synthetic_rate,
        lossy.typical_epsilon,
        lossy.typical_delta,
        lossy.relaxed_top_n,
        lossy.relaxed_margin,
        at.address,
        at.width,
        target_stats.tile_max,
        target_stats.tile_sum,
        target_stats.group_max,
        verdicts,
        *view.arguments,
        batch.vocab_size,
        tiles,
        groups,
        DTYPE=TRITON_DTYPES[batch.target.dtype],
        VIEW=view.flags,
        TILES=power_of_two(tiles),
        LOSSY=batch.lossy is not None,
        num_warps=_WARPS,
    )
    return verdicts


def row_request(batch: Batch) -> Tensor:
    """[N] int32, whose row each target row is; made on the device, whose lengths the host does not ask for."""
    requests = torch.arange(len(batch.draft_lengths), dtype=torch.int32, device=batch.draft_lengths.device)
    return requests.repeat_interleave(batch.draft_lengths.long() + 1, output_size=len(batch.target))


def _lossy(batch: Batch) -> LossyColumns:
    if batch.lossy is not None:
        return batch.lossy
    doubles, ints = placeholder(batch.method, torch.float64), placeholder(batch.method, torch.int32)
    return LossyColumns(doubles, doubles, doubles, ints, doubles)
