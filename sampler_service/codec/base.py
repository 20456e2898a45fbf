"""What nearly every step has: rows, drafts, parameters, seeds and positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels import DraftBlock, IdMap, SamplingParams, Step
from sampler_kernels.refusal import Reason as CoreReason
from sampler_service.codec.columns import check_size, column
from sampler_service.codec.params import ParamsDecoder
from sampler_service.codec.reading import Reading
from sampler_service.codec.tensors import IDS, LOGITS
from sampler_service.errors import Reason, Refusal, refuse

_MAX_FORGET: Final = 1 << 16
"""Ids of one kind that a step may forget: more than can be kept."""


def base_of(reading: Reading, params_decoder: ParamsDecoder) -> Step:
    """The step without histories, masks and log-sum-exps.

    Raises:
        Refusal: Of a tensor, a count or an index that does not fit.
    """
    message, limits, batch = reading.message, reading.limits, reading.batch
    check_size(batch, "draft_lengths", limits.max_batch_size)
    check_size(len(message.draft_blocks), "draft_blocks", limits.max_batch_size)
    if not message.HasField("target_logits"):
        what = "target_logits is missing; a step needs a row of target logits for each draft token and one more"
        raise refuse(Reason.FIELD_REQUIRED, what, field="target_logits")
    target = reading.tensor(message.target_logits, "target_logits", LOGITS, (2,), limits.max_vocab_size).data
    index = column(message.params_index, "params_index", batch)
    seeds, positions = _randomness(message, batch)
    return Step(
        target_logits=target,
        draft_token_ids=_draft_token_ids(reading),
        draft_lengths=list(message.draft_lengths),
        draft_blocks=[_block(reading, b, target.shape[1]) for b in range(len(message.draft_blocks))],
        draft_block_index=column(message.draft_block_index, "draft_block_index", batch),
        params=_params(reading, params_decoder, index),
        params_index=index,
        seeds=seeds,
        positions=positions,
    )


def _draft_token_ids(reading: Reading) -> Tensor:
    if not reading.message.HasField("draft_token_ids"):
        return torch.empty(0, dtype=torch.int32)
    return reading.tensor(reading.message.draft_token_ids, "draft_token_ids", IDS).data


def _block(reading: Reading, b: int, vocab_size: int) -> DraftBlock:
    block, where = reading.message.draft_blocks[b], f"draft_blocks[{b}]"
    if not block.HasField("logits"):
        what = f"{where}.logits is missing; leave the block out for drafts without logits"
        raise refuse(Reason.FIELD_REQUIRED, what, field=f"{where}.logits")
    logits = reading.tensor(block.logits, f"{where}.logits", LOGITS, (2,), reading.limits.max_vocab_size).data
    return DraftBlock(logits, _map(reading, block, where, vocab_size))


def _map(reading: Reading, block: pb.DraftBlock, where: str, vocab_size: int) -> IdMap | None:
    field = f"{where}.draft_id_map"
    if block.kept_draft_id_map:
        if block.HasField("draft_id_map"):
            what = f"{where} has a draft_id_map and names a kept one; at most one of them may be given"
            raise refuse(CoreReason.PARAMETER_CONFLICT, what, field=field)
        field = f"{where}.kept_draft_id_map"
        return reading.kept(field).draft_id_map(block.kept_draft_id_map, field)
    if not block.HasField("draft_id_map"):
        if block.keep_draft_id_map_as:
            what = f"{where}.keep_draft_id_map_as is set, and there is no draft_id_map to keep"
            raise refuse(Reason.FIELD_REQUIRED, what, field=field)
        return None
    ids = reading.tensor(block.draft_id_map, field, IDS)
    if ids.in_region:
        # Distinct ids stand for those that cannot be read, so that all other checks go on.
        return IdMap(torch.arange(min(len(ids.data), vocab_size)), vocab_size)
    if not block.keep_draft_id_map_as:
        return IdMap(ids.data, vocab_size)
    # The bytes belong to a message with all its logits: a map that stays must not keep those.
    id_map = IdMap(ids.data.clone(), vocab_size)
    reading.changes.draft_id_maps[block.keep_draft_id_map_as] = id_map
    reading.kept(f"{where}.keep_draft_id_map_as").check_room(reading.changes)
    return id_map


def _params(reading: Reading, decoder: ParamsDecoder, index: list[int] | None) -> Sequence[SamplingParams]:
    """Sets sent, then sets kept; the defaults if there is neither."""
    message, changes = reading.message, reading.changes
    for name, entries in (("params", message.params), ("kept_params", message.kept_params)):
        check_size(len(entries), name, reading.limits.max_batch_size)
    params = [_one_set(decoder, one, i, index) for i, one in enumerate(message.params)]
    if message.keep_params_as:
        keys = message.keep_params_as
        if len(keys) != len(params):
            what = f"keep_params_as has {len(keys)} entries; it must have {len(params)}, one for each of params"
            raise refuse(CoreReason.SHAPE_MISMATCH, what, field="keep_params_as")
        changes.params = {key: one for key, one in zip(keys, params, strict=True) if key}
    if message.HasField("forget"):
        for name in ("params", "draft_id_maps", "histories"):
            check_size(len(getattr(message.forget, name)), f"forget.{name}", _MAX_FORGET)
        changes.forget = message.forget
    if changes:
        reading.kept("keep_params_as" if changes.params else "forget").check_room(changes)
    for i, key in enumerate(message.kept_params):
        where = f"kept_params[{i}]"
        params.append(reading.kept(where).params(key, where))
    return params or (SamplingParams(),)


def _one_set(decoder: ParamsDecoder, message: pb.SamplingParams, i: int, index: list[int] | None) -> SamplingParams:
    try:
        return decoder.decode(message, f"params[{i}]")
    except Refusal as refusal:
        # Say of which request the mistake is.
        users = [0] if index is None and i == 0 else [r for r, used in enumerate(index or ()) if used == i]
        if users:
            refusal.request = users[0]
            refusal.message = f"request {users[0]}: {refusal.message}"
        raise


def _randomness(message: pb.Step, batch: int) -> tuple[list[int | None] | None, list[int] | None]:
    """Seeds and positions; a seed without a position would serve every step of its sequence."""
    given = column(message.seeds, "seeds", batch)
    seeds: list[int | None] | None = None if given is None else [*given]
    has_seed = column(message.has_seed, "has_seed", batch)
    positions = column(message.positions, "positions", batch)
    if has_seed is not None and seeds is not None:
        seeds = [seed if has else None for seed, has in zip(seeds, has_seed, strict=True)]
    elif has_seed is not None and True in has_seed:
        request = has_seed.index(True)
        what = f"request {request}: has_seed is true and seeds is empty; send the seed, or leave has_seed out"
        raise Refusal(Reason.FIELD_REQUIRED.value, what, "seeds", request)
    if seeds is not None and positions is None:
        for request, seed in enumerate(seeds):
            if seed is not None:
                what = f"request {request}: seeds gives a seed and positions is empty; a seed needs its position"
                raise Refusal(Reason.SEED_WITHOUT_POSITION.value, what, f"seeds[{request}]", request)
    return seeds, positions
