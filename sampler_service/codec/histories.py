"""Histories of a step: ids laid end to end or in rows; kept and sparse ones are checked, and not built yet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels import Ragged
from sampler_kernels.refusal import Reason as CoreReason
from sampler_service.codec.columns import check_count, column
from sampler_service.codec.reading import Reading
from sampler_service.codec.tensors import IDS
from sampler_service.errors import Reason, Refusal


def history_of(reading: Reading, message: pb.History, field: str) -> Ragged | None:
    """The history of every request; None, with a note, where one is given in a way that is not built.

    Raises:
        Refusal: Of a tensor, a count or a length that does not fit.
    """
    batch = reading.batch
    lengths = column(message.lengths, f"{field}.lengths", batch) or [0] * batch
    _check_lengths(lengths, f"{field}.lengths", reading.limits.max_history_length)
    values = _token_ids(reading, message, field, lengths)
    if _check_kept(message, field, batch) | _check_sparse(reading, message, field, lengths):
        reading.miss("kept and sparse histories are", field)
        return None
    return Ragged(values, [0, *accumulate(lengths)])


def _token_ids(reading: Reading, message: pb.History, field: str, lengths: Sequence[int]) -> Tensor:
    values, in_region = torch.empty(0, dtype=torch.int32), False
    if message.HasField("token_ids"):
        widest = reading.limits.max_history_length
        values, in_region = reading.tensor(message.token_ids, f"{field}.token_ids", IDS, (1, 2), widest)
    if values.ndim == 1:
        check_count(values.shape[0], f"{field}.token_ids", sum(lengths), "the sum of lengths")
        return values
    check_count(values.shape[0], f"{field}.token_ids", len(lengths), "a row for each request")
    for r, length in enumerate(lengths):
        if length > values.shape[1]:
            what = f"request {r}: {field}.lengths is {length}; rows of token_ids have {values.shape[1]} ids"
            raise Refusal(CoreReason.SHAPE_MISMATCH.value, what, f"{field}.lengths[{r}]", r)
    if in_region:
        # The zeros that stand for it take no memory; laid end to end they would, as much as the message claims.
        return values.new_zeros(1).expand(sum(lengths))
    return torch.cat([values[r, :length] for r, length in enumerate(lengths)])


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


def _check_sparse(reading: Reading, message: pb.History, field: str, lengths: Sequence[int]) -> bool:
    """Whether any request gives its history as counts."""
    sparse = column(message.sparse_lengths, f"{field}.sparse_lengths", len(lengths)) or [0] * len(lengths)
    _check_lengths(sparse, f"{field}.sparse_lengths", reading.limits.max_history_length)
    cu = [0, *accumulate(sparse)]
    ids = _sparse_table(reading, message, "sparse_token_ids", field, cu[-1])
    counts = _sparse_table(reading, message, "sparse_counts", field, cu[-1])
    kept = message.kept_histories or [0] * len(lengths)
    for r, n in enumerate(sparse):
        if n and (lengths[r] or kept[r]):
            what = f"request {r}: {field} has sparse counts beside ids or a kept history; give one of them"
            raise Refusal(CoreReason.PARAMETER_CONFLICT.value, what, f"{field}.sparse_lengths[{r}]", r)
        if ids is not None and len(set(ids[cu[r] : cu[r + 1]])) != n:
            what = f"request {r}: {field}.sparse_token_ids names an id twice; ids must be distinct"
            raise Refusal(CoreReason.PARAMETER_CONFLICT.value, what, f"{field}.sparse_token_ids", r)
        if counts is not None and min(counts[cu[r] : cu[r + 1]], default=1) < 1:
            what = f"request {r}: {field}.sparse_counts holds a number below 1; each must be at least 1"
            raise Refusal(CoreReason.PARAMETER_OUT_OF_RANGE.value, what, f"{field}.sparse_counts", r)
    return any(sparse)


def _sparse_table(
    reading: Reading,
    message: pb.History,
    name: Literal["sparse_token_ids", "sparse_counts"],
    field: str,
    entries: int,
) -> list[int] | None:
    """The numbers of one of the two tables; None where they lie in a region and cannot be read."""
    values = None
    if message.HasField(name):
        values = reading.tensor(getattr(message, name), f"{field}.{name}", IDS)
    check_count(0 if values is None else len(values.data), f"{field}.{name}", entries, "the sum of sparse_lengths")
    if values is None:
        return []
    return None if values.in_region else values.data.tolist()


def _check_lengths(lengths: Sequence[int], field: str, most: int) -> None:
    for r, length in enumerate(lengths):
        if length < 0:
            what = f"request {r}: {field} is {length}; it must be at least 0"
            raise Refusal(CoreReason.PARAMETER_OUT_OF_RANGE.value, what, f"{field}[{r}]", r)
        if length > most:
            what = f"request {r}: {field} is {length}; this server takes at most {most} ids"
            raise Refusal(Reason.LIMIT_EXCEEDED.value, what, f"{field}[{r}]", r)
