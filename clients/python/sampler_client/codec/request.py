"""``Step`` -> serialized request messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sampler_client.arrays import doubles, integers, logits
from sampler_client.codec.columns import extend, plain
from sampler_client.codec.params import encode_params
from sampler_client.codec.tensors import add_tensor
from sampler_client.codec.wire import Chunks
from sampler_client.errors import invalid
from sampler_client.params import SamplingParams
from sampler_client.step import Array, DraftBlock, History, Ints, Step
from sampler_client.v1 import sampler_pb2 as pb


@dataclass(frozen=True, eq=False)
class ParamsColumns:
    """How the parameter sets of a step go over the wire, where some are kept by the server.

    Attributes:
        sent: Sets written into the message.
        index: [B] into ``sent`` followed by ``kept``; None: the first for all.
        kept: Ids of sets that the server keeps already.
        keep_as: Id under which the server shall keep each set of ``sent``, 0 for not; empty: none.
    """

    sent: Sequence[SamplingParams]
    index: Ints | None = None
    kept: Sequence[int] = ()
    keep_as: Sequence[int] = ()


def encode_verify_request(step: Step) -> bytes:
    """A serialized ``VerifyRequest``. Logits are copied once, from the caller's memory into the result.

    Raises:
        InvalidStep: The step cannot be said in the contract's terms: a dtype, number of dimensions or number that has
            no place in it. Everything else is the service's to check.
    """
    out = Chunks()
    out.add_message(pb.VerifyRequest.STEP_FIELD_NUMBER, _step(step, ParamsColumns(step.params, step.params_index)))
    return out.join()


def encode_stream_request(
    step: Step, *, step_id: int, timeout_us: int = 0, params: ParamsColumns | None = None
) -> bytes:
    """A serialized ``VerifyStreamRequest``.

    Args:
        step: The step.
        step_id: Echoed in the answer, 0..2^64-1.
        timeout_us: Microseconds within which the step is worth doing, 0 for no limit of its own.
        params: The step's parameter sets where some are kept; None: all are sent.

    Raises:
        InvalidStep: As :func:`encode_verify_request`.
    """
    out = Chunks(pb.VerifyStreamRequest(step_id=step_id, timeout_us=timeout_us).SerializeToString())
    columns = params or ParamsColumns(step.params, step.params_index)
    out.add_message(pb.VerifyStreamRequest.STEP_FIELD_NUMBER, _step(step, columns))
    return out.join()


def _step(step: Step, params: ParamsColumns) -> Chunks:
    out = Chunks(_columns(step, params).SerializeToString())
    for entry in params.sent:
        out.add(encode_params(entry))
    add_tensor(out, pb.Step.TARGET_LOGITS_FIELD_NUMBER, logits(step.target_logits, "target_logits"))
    for position, block in enumerate(step.draft_blocks):
        out.add_message(pb.Step.DRAFT_BLOCKS_FIELD_NUMBER, _draft_block(block, f"draft_blocks[{position}]"))
    _add(out, pb.Step.DRAFT_TOKEN_IDS_FIELD_NUMBER, step.draft_token_ids, "draft_token_ids", integers)
    _add(out, pb.Step.TARGET_LOGSUMEXP_FIELD_NUMBER, step.target_logsumexp, "target_logsumexp", doubles)
    _add(out, pb.Step.DRAFT_LOGSUMEXP_FIELD_NUMBER, step.draft_logsumexp, "draft_logsumexp", doubles)
    if step.prompt_token_ids is not None:
        out.add_message(pb.Step.PROMPT_TOKEN_IDS_FIELD_NUMBER, _history(step.prompt_token_ids, "prompt_token_ids"))
    if step.output_token_ids is not None:
        out.add_message(pb.Step.OUTPUT_TOKEN_IDS_FIELD_NUMBER, _history(step.output_token_ids, "output_token_ids"))
    if step.token_bitmask is not None:
        out.add_message(pb.Step.TOKEN_BITMASK_FIELD_NUMBER, _bitmask(step.token_bitmask, step.token_bitmask_index))
    return out


def _columns(step: Step, params: ParamsColumns) -> pb.Step:
    """The columns of numbers, one per request."""
    message = pb.Step()
    extend(message.draft_lengths, step.draft_lengths, "draft_lengths")
    extend(message.draft_block_index, step.draft_block_index, "draft_block_index")
    extend(message.params_index, params.index, "params_index")
    extend(message.kept_params, params.kept, "kept_params")
    extend(message.keep_params_as, params.keep_as, "keep_params_as")
    if step.seeds is not None:
        seeds = plain(step.seeds)
        if None in seeds:
            extend(message.has_seed, [seed is not None for seed in seeds], "has_seed")
            seeds = [seed or 0 for seed in seeds]
        extend(message.seeds, seeds, "seeds")
    extend(message.positions, step.positions, "positions")
    extend(message.num_output_tokens, step.num_output_tokens, "num_output_tokens")
    extend(message.has_target_logsumexp, step.has_target_logsumexp, "has_target_logsumexp")
    extend(message.has_draft_logsumexp, step.has_draft_logsumexp, "has_draft_logsumexp")
    return message


def _draft_block(block: DraftBlock, field: str) -> Chunks:
    out = Chunks()
    add_tensor(out, pb.DraftBlock.LOGITS_FIELD_NUMBER, logits(block.logits, f"{field}.logits"))
    _add(out, pb.DraftBlock.DRAFT_ID_MAP_FIELD_NUMBER, block.draft_id_map, f"{field}.draft_id_map", integers)
    return out


def _history(history: History, field: str) -> Chunks:
    message = pb.History()
    for name in ("lengths", "sparse_lengths", "kept_histories", "kept_lengths"):
        extend(getattr(message, name), getattr(history, name), f"{field}.{name}")
    out = Chunks(message.SerializeToString())
    if history.token_ids is not None:
        ids = integers(history.token_ids, f"{field}.token_ids", ndim=(1, 2))
        add_tensor(out, pb.History.TOKEN_IDS_FIELD_NUMBER, ids)
    _add(out, pb.History.SPARSE_TOKEN_IDS_FIELD_NUMBER, history.sparse_token_ids, f"{field}.sparse_token_ids", integers)
    _add(out, pb.History.SPARSE_COUNTS_FIELD_NUMBER, history.sparse_counts, f"{field}.sparse_counts", integers)
    return out


def _bitmask(words: Array, index: Ints | None) -> Chunks:
    message = pb.TokenBitmask()
    extend(message.mask_index, index, "token_bitmask_index")
    out = Chunks(message.SerializeToString())
    array = integers(words, "token_bitmask", ndim=(2,))
    if array.dtype != np.int32:
        raise invalid("DTYPE_UNSUPPORTED", "token_bitmask", f"token_bitmask is {array.dtype}, expected int32")
    add_tensor(out, pb.TokenBitmask.WORDS_FIELD_NUMBER, array)
    return out


def _add(out: Chunks, number: int, value: Array | None, field: str, see: Callable[[Array, str], NDArray[Any]]) -> None:
    if value is not None:
        add_tensor(out, number, see(value, field))
