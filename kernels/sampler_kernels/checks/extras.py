"""Shapes of what a step may bring besides logits and drafts: histories, masks, log-sum-exps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from sampler_kernels.checks.integers import int_column
from sampler_kernels.checks.refusing import refusal
from sampler_kernels.checks.shapes import PER_REQUEST
from sampler_kernels.checks.tensors import ID_DTYPES, check_count, check_matrix, check_place, check_vector
from sampler_kernels.host import HostColumns
from sampler_kernels.refusal import Reason
from sampler_kernels.step import Ragged, Step, TokenCounts


def check_extras(step: Step, host: HostColumns) -> None:
    """Refuse histories, bitmasks and log-sum-exps that do not fit the step.

    Raises:
        StepRefused: SHAPE_MISMATCH, LAYOUT_UNSUPPORTED, DTYPE_UNSUPPORTED, INDEX_OUT_OF_RANGE, PARAMETER_CONFLICT
            or PARAMETER_OUT_OF_RANGE.
    """
    batch, rows = len(host.draft_lengths), int(host.cu_num_logits[-1])
    for field, history in (("prompt_token_ids", step.prompt_token_ids), ("output_token_ids", step.output_token_ids)):
        if history is not None:
            _check_history(history, field, batch)
    if step.output_token_counts is not None:
        _check_counts(step, step.output_token_counts, host)
    if step.num_output_tokens is not None:
        check_count(len(step.num_output_tokens), "num_output_tokens", batch, PER_REQUEST)
        int_column(step.num_output_tokens, "num_output_tokens", -1, 2**31)
    _check_bitmask(step, rows)
    _check_flags(step.has_target_logsumexp, "has_target_logsumexp", np.ones(batch, np.bool_))
    _check_flags(step.has_draft_logsumexp, "has_draft_logsumexp", host.block_index >= 0)
    doubles = (torch.float64,)
    if step.target_logsumexp is not None:
        check_vector(step.target_logsumexp, "target_logsumexp", doubles, rows, "one for each target row")
    if step.draft_logsumexp is not None:
        drafts = int(host.draft_lengths[host.block_index >= 0].sum())
        check_vector(step.draft_logsumexp, "draft_logsumexp", doubles, drafts, "one for each row of draft logits")


def _check_flags(flags: Sequence[bool] | None, field: str, possible: NDArray[np.bool_]) -> None:
    if flags is None:
        return
    check_count(len(flags), field, len(possible), PER_REQUEST)
    impossible = np.asarray(flags, np.bool_) & ~possible
    if impossible.any():
        request = int(impossible.argmax())
        what = f"{field} is true, and the request has no draft logits"
        raise refusal(Reason.PARAMETER_CONFLICT, what, field=field, request=request)


def _check_history(history: Ragged, field: str, batch: int) -> None:
    """Ids of a history may be anything: what lies outside the vocabulary stands for other modalities."""
    cu = np.asarray(history.cu)
    check_count(len(cu), field, batch + 1, "one more than requests, in its prefix sum")
    if cu.dtype.kind not in "iu" or cu[0] != 0 or (np.diff(cu.astype(np.int64)) < 0).any():
        what = f"{field} lacks a prefix sum of lengths: integers that begin with 0 and never decrease"
        raise refusal(Reason.SHAPE_MISMATCH, what, field=field)
    check_vector(history.values, field, ID_DTYPES, int(cu[-1]), "the last entry of its prefix sum")


def _check_counts(step: Step, counts: TokenCounts, host: HostColumns) -> None:
    """A history is ids or counts, and has no order as counts."""
    field = "output_token_ids"
    _check_history(counts.ids, field, len(host.draft_lengths))
    check_vector(counts.counts, f"{field}.sparse_counts", ID_DTYPES, len(counts.ids.values), "one for each sparse id")
    check_place(counts.counts, f"{field}.sparse_counts", torch.device("cpu"))
    if len(counts.counts) and int(counts.counts.min()) < 1:
        what = f"{field}.sparse_counts has an entry of {int(counts.counts.min())}; each must be at least 1"
        raise refusal(Reason.PARAMETER_OUT_OF_RANGE, what, field=f"{field}.sparse_counts")
    given = np.diff(np.asarray(counts.ids.cu, np.int64)) > 0
    if step.output_token_ids is not None:
        both = given & (np.diff(np.asarray(step.output_token_ids.cu, np.int64)) > 0)
        if both.any():
            what = f"{field} are given both as ids and as counts; a request's history is one or the other"
            raise refusal(Reason.PARAMETER_CONFLICT, what, field=field, request=int(both.argmax()))
    ordered = np.array([any(len(word) > 1 for word in params.bad_words) for params in step.params], np.bool_)
    if ordered.any() and (given & ordered[host.params_index]).any():
        request = int((given & ordered[host.params_index]).argmax())
        what = "bad_words of several ids need the output ids in their order; the request gives them as counts"
        raise refusal(Reason.PARAMETER_CONFLICT, what, field="bad_words", request=request)


def _check_bitmask(step: Step, rows: int) -> None:
    mask, index = step.token_bitmask, step.token_bitmask_index
    if (mask is None) != (index is None):
        missing = "an index" if index is None else "a table"
        what = f"token_bitmask lacks {missing}; its rows and the row of each target row belong together"
        raise refusal(Reason.SHAPE_MISMATCH, what, field="token_bitmask")
    if mask is None or index is None:
        return
    check_matrix(mask, "token_bitmask.words", (torch.int32,))
    words = -(-step.target_logits.shape[1] // 32)
    if mask.shape[1] != words:
        what = f"token_bitmask has rows of {mask.shape[1]} words; they must have {words}, one for each 32 target ids"
        raise refusal(Reason.SHAPE_MISMATCH, what, field="token_bitmask")
    check_count(len(index), "token_bitmask.mask_index", rows, "one for each target row")
    reason = Reason.INDEX_OUT_OF_RANGE
    int_column(index, "token_bitmask.mask_index", -1, mask.shape[0], reason=reason, per_request=False)
