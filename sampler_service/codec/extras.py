"""What a step may bring besides logits, drafts and parameters: histories, masks and log-sum-exps.

They are read after the step without them has passed its checks, so draft lengths and indices are sound here.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels import Step
from sampler_kernels.refusal import Reason as CoreReason
from sampler_service.codec.columns import check_count, column
from sampler_service.codec.histories import history_of
from sampler_service.codec.reading import Reading
from sampler_service.codec.tensors import DOUBLES, WORDS
from sampler_service.errors import Reason, Refusal, refuse

IntColumn: TypeAlias = "NDArray[np.int64]"
BoolColumn: TypeAlias = "NDArray[np.bool_]"


def extras_of(reading: Reading, step: Step) -> dict[str, Any]:
    """Fields of :class:`Step` to be added to the step, by name; empty for a step without extras.

    Raises:
        Refusal: Of a tensor, a count or a flag that does not fit.
    """
    message = reading.message
    if not _any_extra(message):
        return {}
    found: dict[str, Any] = {}
    if message.HasField("prompt_token_ids"):
        found["prompt_token_ids"] = history_of(reading, message.prompt_token_ids, "prompt_token_ids")
    if message.HasField("output_token_ids"):
        found["output_token_ids"] = history_of(reading, message.output_token_ids, "output_token_ids")
    if message.num_output_tokens:
        found["num_output_tokens"] = column(message.num_output_tokens, "num_output_tokens", reading.batch)
    if message.HasField("token_bitmask"):
        found |= _bitmask(reading, message.token_bitmask, step)
    lengths = np.asarray(step.draft_lengths)
    found |= _logsumexp(reading, "target_logsumexp", lengths + 1, np.ones(reading.batch, bool))
    found |= _logsumexp(reading, "draft_logsumexp", lengths, _has_logits(step))
    return found


def _any_extra(message: pb.Step) -> bool:
    """Whether there is anything to read: most steps have nothing, and this runs for every step."""
    return (
        message.HasField("prompt_token_ids")
        or message.HasField("output_token_ids")
        or message.HasField("token_bitmask")
        or message.HasField("target_logsumexp")
        or message.HasField("draft_logsumexp")
        or len(message.num_output_tokens) + len(message.has_target_logsumexp) + len(message.has_draft_logsumexp) > 0
    )


def _bitmask(reading: Reading, message: pb.TokenBitmask, step: Step) -> dict[str, Any]:
    field, batch, rows = "token_bitmask", reading.batch, step.target_logits.shape[0]
    if not message.HasField("words"):
        what = "token_bitmask.words is missing; leave token_bitmask out if every id is allowed"
        raise refuse(Reason.FIELD_REQUIRED, what, field="token_bitmask.words")
    words = reading.tensor(message.words, f"{field}.words", WORDS, (2,), reading.limits.max_vocab_size // 32).data
    count = len(message.mask_index) or words.shape[0]
    if count not in (batch, rows):
        what = f"{field} has {count} masks for {batch} requests and {rows} rows; it must have one for each of either"
        raise refuse(CoreReason.SHAPE_MISMATCH, what, field=field)
    index = list(message.mask_index) or list(range(count))
    if count != rows:
        index = np.repeat(index, np.asarray(step.draft_lengths) + 1).tolist()
    return {"token_bitmask": words, "token_bitmask_index": index}


def _logsumexp(
    reading: Reading, field: Literal["target_logsumexp", "draft_logsumexp"], counts: IntColumn, readable: BoolColumn
) -> dict[str, Any]:
    """Supplied log-sum-exps: ``counts[r]`` entries for each request r whose rows are ``readable``."""
    message = reading.message
    flags = column(getattr(message, f"has_{field}"), f"has_{field}", reading.batch)
    wanted = readable if flags is None else np.asarray(flags)
    if not message.HasField(field):
        if flags is not None and wanted.any():
            request = int(wanted.argmax())
            what = f"request {request}: has_{field} is true, and {field} is missing"
            raise Refusal(Reason.FIELD_REQUIRED.value, what, field, request)
        return {}
    tensor = reading.tensor(getattr(message, field), field, DOUBLES)
    check_count(len(tensor.data), field, int(counts[readable].sum()), "one for each row of logits that it speaks of")
    if (wanted & ~readable).any():
        request = int((wanted & ~readable).argmax())
        what = f"request {request}: has_{field} is true, and the request has no draft logits"
        raise Refusal(CoreReason.PARAMETER_CONFLICT.value, what, f"has_{field}[{request}]", request)
    if tensor.in_region or not wanted.any():
        return {}
    return {field: tensor.data, f"has_{field}": wanted}


def _has_logits(step: Step) -> BoolColumn:
    """[B] whether the request has draft logits."""
    if step.draft_block_index is not None:
        return np.asarray(step.draft_block_index) >= 0
    return np.full(len(step.draft_lengths), len(step.draft_blocks) == 1)
