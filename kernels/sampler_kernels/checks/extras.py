"""Shapes of what a step may bring besides logits and drafts: histories, masks, log-sum-exps."""

from __future__ import annotations

import numpy as np
import torch

from sampler_kernels.checks.integers import int_column
from sampler_kernels.checks.refusing import refusal
from sampler_kernels.checks.shapes import PER_REQUEST
from sampler_kernels.checks.tensors import ID_DTYPES, check_count, check_matrix, check_vector
from sampler_kernels.host import HostColumns
from sampler_kernels.refusal import Reason
from sampler_kernels.step import Ragged, Step


def check_extras(step: Step, host: HostColumns) -> None:
    """Refuse histories, bitmasks and log-sum-exps that do not fit the step.

    Raises:
        StepRefused: SHAPE_MISMATCH, LAYOUT_UNSUPPORTED, DTYPE_UNSUPPORTED, INDEX_OUT_OF_RANGE or
            PARAMETER_OUT_OF_RANGE.
    """
    batch, rows = len(host.draft_lengths), int(host.cu_num_logits[-1])
    for field, history in (("prompt_token_ids", step.prompt_token_ids), ("output_token_ids", step.output_token_ids)):
        if history is not None:
            _check_history(history, field, batch)
    if step.num_output_tokens is not None:
        check_count(len(step.num_output_tokens), "num_output_tokens", batch, PER_REQUEST)
        int_column(step.num_output_tokens, "num_output_tokens", -1, 2**31)
    _check_bitmask(step, rows)
    doubles = (torch.float64,)
    if step.target_logsumexp is not None:
        check_vector(step.target_logsumexp, "target_logsumexp", doubles, rows, "one for each target row")
    if step.draft_logsumexp is not None:
        drafts = int(host.draft_lengths[host.block_index >= 0].sum())
        check_vector(step.draft_logsumexp, "draft_logsumexp", doubles, drafts, "one for each row of draft logits")


def _check_history(history: Ragged, field: str, batch: int) -> None:
    """Ids of a history may be anything: what lies outside the vocabulary stands for other modalities."""
    cu = np.asarray(history.cu)
    check_count(len(cu), field, batch + 1, "one more than requests, in its prefix sum")
    if cu.dtype.kind not in "iu" or cu[0] != 0 or (np.diff(cu.astype(np.int64)) < 0).any():
        what = f"{field} lacks a prefix sum of lengths: integers that begin with 0 and never decrease"
        raise refusal(Reason.SHAPE_MISMATCH, what, field=field)
    check_vector(history.values, field, ID_DTYPES, int(cu[-1]), "the last entry of its prefix sum")


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
