"""What a step may bring besides logits, drafts and parameters: histories, masks and log-sum-exps.

They are read after the step without them has passed its checks, so draft lengths and indices are sound here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels import Ragged, Step
from sampler_kernels.refusal import Reason as CoreReason
from sampler_service.codec.columns import check_count, column
from sampler_service.codec.tensors import DOUBLES, IDS, WORDS, read_tensor
from sampler_service.errors import Reason, Refusal, refuse
from sampler_service.limits import Limits

IntColumn: TypeAlias = "NDArray[np.int64]"
BoolColumn: TypeAlias = "NDArray[np.bool_]"
Miss = Callable[[str, str], None]
"""Takes (what is not built, field): notes something legal that this server cannot do."""

_IN_REGION = "tensors in registered regions are"


def extras_of(message: pb.Step, step: Step, limits: Limits, miss: Miss) -> dict[str, Any]:
    """Fields of :class:`Step` to be added to the step, by name; empty for a step without extras.

    Raises:
        Refusal: Of a tensor, a count or a flag that does not fit.
    """
    if not _any_extra(message):
        return {}
    batch = len(step.draft_lengths)
    found: dict[str, Any] = {}
    for field in ("prompt_token_ids", "output_token_ids"):
        if message.HasField(field):
            found[field] = _history(getattr(message, field), field, batch, limits, miss)
    if message.num_output_tokens:
        found["num_output_tokens"] = column(message.num_output_tokens, "num_output_tokens", batch)
    if message.HasField("token_bitmask"):
        found |= _bitmask(message.token_bitmask, step, limits, miss)
    lengths = np.asarray(step.draft_lengths)
    found |= _logsumexp(message, "target_logsumexp", lengths + 1, np.ones(batch, bool), miss)
    found |= _logsumexp(message, "draft_logsumexp", lengths, _has_logits(step), miss)
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


def _history(message: pb.History, field: str, batch: int, limits: Limits, miss: Miss) -> Ragged | None:
    lengths = column(message.lengths, f"{field}.lengths", batch) or [0] * batch
    _check_lengths(lengths, f"{field}.lengths", limits.max_history_length)
    values = torch.empty(0, dtype=torch.int32)
    if message.HasField("token_ids"):
        widest = limits.max_history_length
        tensor = read_tensor(message.token_ids, f"{field}.token_ids", IDS, (1, 2), max_columns=widest)
        if tensor.in_region:
            miss(_IN_REGION, f"{field}.token_ids.region")
        values = tensor.data
    if values.ndim == 2:
        check_count(values.shape[0], f"{field}.token_ids", batch, "a row for each request")
        long = next((r for r, length in enumerate(lengths) if length > values.shape[1]), None)
        if long is not None:
            what = f"request {long}: {field}.lengths is {lengths[long]}; rows of token_ids have {values.shape[1]} ids"
            raise Refusal(CoreReason.SHAPE_MISMATCH.value, what, f"{field}.lengths", long)
        values = torch.cat([values[r, :length] for r, length in enumerate(lengths)])
    else:
        check_count(values.shape[0], f"{field}.token_ids", sum(lengths), "the sum of lengths")
    if _check_kept(message, field, batch) | _check_sparse(message, field, lengths, limits, miss):
        miss("kept and sparse histories are", field)
        return None
    return Ragged(values, [0, *accumulate(lengths)])


def _check_kept(message: pb.History, field: str, batch: int) -> bool:
    """Whether any request continues a kept history."""
    kept = column(message.kept_histories, f"{field}.kept_histories", batch) or []
    check_count(len(message.kept_lengths), f"{field}.kept_lengths", len(kept), "one for each of kept_histories")
    for r, (key, length) in enumerate(zip(kept, message.kept_lengths, strict=True)):
        if length < 0 or (length and not key):
            legal = "at least 0" if key else "0 where there is no kept history"
            what = f"request {r}: {field}.kept_lengths is {length}; it must be {legal}"
            raise Refusal(CoreReason.PARAMETER_OUT_OF_RANGE.value, what, f"{field}.kept_lengths[{r}]", r)
    return any(kept)


def _check_sparse(message: pb.History, field: str, lengths: Sequence[int], limits: Limits, miss: Miss) -> bool:
    """Whether any request gives its history as counts."""
    sparse = column(message.sparse_lengths, f"{field}.sparse_lengths", len(lengths)) or [0] * len(lengths)
    _check_lengths(sparse, f"{field}.sparse_lengths", limits.max_history_length)
    cu = [0, *accumulate(sparse)]
    tables = {}
    for name in ("sparse_token_ids", "sparse_counts"):
        values = torch.empty(0, dtype=torch.int32)
        if message.HasField(name):
            tensor = read_tensor(getattr(message, name), f"{field}.{name}", IDS, (1,))
            if tensor.in_region:
                miss(_IN_REGION, f"{field}.{name}.region")
                return True
            values = tensor.data
        check_count(len(values), f"{field}.{name}", cu[-1], "the sum of sparse_lengths")
        tables[name] = values
    kept = message.kept_histories or [0] * len(lengths)
    for r, n in enumerate(sparse):
        if n and (lengths[r] or kept[r]):
            what = f"request {r}: {field} has sparse counts beside ids or a kept history; give one of them"
            raise Refusal(CoreReason.PARAMETER_CONFLICT.value, what, f"{field}.sparse_lengths", r)
        ids, counts = (tables[name][cu[r] : cu[r + 1]] for name in ("sparse_token_ids", "sparse_counts"))
        if len(set(ids.tolist())) != n:
            what = f"request {r}: {field}.sparse_token_ids names an id twice; ids must be distinct"
            raise Refusal(CoreReason.PARAMETER_CONFLICT.value, what, f"{field}.sparse_token_ids", r)
        if (counts < 1).any():
            what = f"request {r}: {field}.sparse_counts holds {int(counts.min())}; each must be at least 1"
            raise Refusal(CoreReason.PARAMETER_OUT_OF_RANGE.value, what, f"{field}.sparse_counts", r)
    return any(sparse)


def _check_lengths(lengths: Sequence[int], field: str, most: int) -> None:
    for r, length in enumerate(lengths):
        if length < 0:
            what = f"request {r}: {field} is {length}; it must be at least 0"
            raise Refusal(CoreReason.PARAMETER_OUT_OF_RANGE.value, what, f"{field}[{r}]", r)
        if length > most:
            what = f"request {r}: {field} is {length}; this server takes at most {most} ids"
            raise Refusal(Reason.LIMIT_EXCEEDED.value, what, f"{field}[{r}]", r)


def _bitmask(message: pb.TokenBitmask, step: Step, limits: Limits, miss: Miss) -> dict[str, Any]:
    field, batch, rows = "token_bitmask", len(step.draft_lengths), step.target_logits.shape[0]
    if not message.HasField("words"):
        what = "token_bitmask.words is missing; leave token_bitmask out if every id is allowed"
        raise refuse(Reason.FIELD_REQUIRED, what, field="token_bitmask.words")
    words = read_tensor(message.words, f"{field}.words", WORDS, (2,), max_columns=limits.max_vocab_size // 32)
    if words.in_region:
        miss(_IN_REGION, f"{field}.words.region")
    count = len(message.mask_index) or words.data.shape[0]
    if count not in (batch, rows):
        what = f"{field} has {count} masks for {batch} requests and {rows} rows; it must have one for each of either"
        raise refuse(CoreReason.SHAPE_MISMATCH, what, field=field)
    index = list(message.mask_index) or list(range(count))
    if count != rows:
        index = np.repeat(index, np.asarray(step.draft_lengths) + 1).tolist()
    return {"token_bitmask": words.data, "token_bitmask_index": index}


def _logsumexp(
    message: pb.Step,
    field: Literal["target_logsumexp", "draft_logsumexp"],
    counts: IntColumn,
    readable: BoolColumn,
    miss: Miss,
) -> dict[str, Any]:
    """Supplied log-sum-exps: ``counts[r]`` entries for each request r whose rows are ``readable``."""
    flags = column(getattr(message, f"has_{field}"), f"has_{field}", len(counts))
    wanted = readable if flags is None else np.asarray(flags)
    if not message.HasField(field):
        if flags is not None and wanted.any():
            request = int(wanted.argmax())
            what = f"request {request}: has_{field} is true, and {field} is missing"
            raise Refusal(Reason.FIELD_REQUIRED.value, what, field, request)
        return {}
    tensor = read_tensor(getattr(message, field), field, DOUBLES, (1,))
    check_count(len(tensor.data), field, int(counts[readable].sum()), "one for each row of logits that it speaks of")
    if (wanted & ~readable).any():
        request = int((wanted & ~readable).argmax())
        what = f"request {request}: has_{field} is true, and the request has no draft logits"
        raise Refusal(CoreReason.PARAMETER_CONFLICT.value, what, f"has_{field}[{request}]", request)
    if not wanted.any():
        return {}
    if tensor.in_region:
        miss("log-sum-exps in regions are", field)
        return {}
    return {field: tensor.data, f"has_{field}": wanted}


def _has_logits(step: Step) -> BoolColumn:
    """[B] whether the request has draft logits."""
    if step.draft_block_index is not None:
        return np.asarray(step.draft_block_index) >= 0
    return np.full(len(step.draft_lengths), len(step.draft_blocks) == 1)
