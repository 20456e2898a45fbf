"""Shapes of a step: its parts must agree about every count before any of them is read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sampler_kernels.checks.integers import int_column, uint64_column
from sampler_kernels.checks.refusing import outside, refusal
from sampler_kernels.checks.tensors import ID_DTYPES, check_count, check_matrix, check_place, check_vector
from sampler_kernels.host import HostColumns, prefix_sum
from sampler_kernels.layout import MAX_DRAFT_TOKENS
from sampler_kernels.refusal import Reason
from sampler_kernels.rows import LOGIT_DTYPES
from sampler_kernels.step import Step

_FAR = 2**64 - 1 - MAX_DRAFT_TOKENS
"""Positions below this have room for any draft."""

PER_REQUEST = "one for each request"
"""What a column's length is held to."""


def host_columns(step: Step) -> HostColumns:
    """Read the columns of a step and refuse what does not fit together.

    Returns:
        The columns, each of the right length and in range.

    Raises:
        StepRefused: EMPTY_BATCH, EMPTY_VOCABULARY, SHAPE_MISMATCH, LAYOUT_UNSUPPORTED, DTYPE_UNSUPPORTED,
            TOO_MANY_DRAFT_TOKENS, INDEX_OUT_OF_RANGE or PARAMETER_OUT_OF_RANGE.
    """
    lengths = _draft_lengths(step)
    batch = len(lengths)
    cu_drafts = prefix_sum(lengths)
    cu_num_logits = cu_drafts + np.arange(batch + 1)
    _check_target(step, int(cu_num_logits[-1]))
    drafts = int(cu_drafts[-1])
    check_vector(step.draft_token_ids, "draft_token_ids", ID_DTYPES, drafts, "the sum of draft_lengths")
    block_index = _block_index(step, batch)
    first_draft_row = _check_blocks(step, lengths, block_index)
    seeds, has_seed = seed_columns(step, batch)
    return HostColumns(
        draft_lengths=lengths,
        cu_drafts=cu_drafts,
        cu_num_logits=cu_num_logits,
        params_index=_params_index(step, batch),
        block_index=block_index,
        first_draft_row=first_draft_row,
        seeds=seeds,
        has_seed=has_seed,
        positions=position_column(step, lengths),
    )


def _draft_lengths(step: Step) -> NDArray[np.int64]:
    if len(step.draft_lengths) == 0:
        raise refusal(
            Reason.EMPTY_BATCH, "draft_lengths is empty; a step has at least one request", field="draft_lengths"
        )
    lengths = int_column(step.draft_lengths, "draft_lengths", 0, 2**31)
    if lengths.max() > MAX_DRAFT_TOKENS:
        request = int((lengths > MAX_DRAFT_TOKENS).argmax())
        legal, reason = f"at most {MAX_DRAFT_TOKENS}", Reason.TOO_MANY_DRAFT_TOKENS
        raise outside("draft_lengths", int(lengths[request]), legal, reason=reason, request=request)
    return lengths


def _check_target(step: Step, rows: int) -> None:
    target = step.target_logits
    check_matrix(target, "target_logits", LOGIT_DTYPES)
    if target.shape[1] == 0:
        what = "target_logits have no columns; there must be at least one"
        raise refusal(Reason.EMPTY_VOCABULARY, what, field="target_logits")
    check_count(target.shape[0], "target_logits", rows, "the sum of draft_lengths plus one row for each request")


def _params_index(step: Step, batch: int) -> NDArray[np.int64]:
    if len(step.params) == 0:
        raise refusal(Reason.INDEX_OUT_OF_RANGE, "params is empty; it must hold at least one set", field="params")
    if step.params_index is None:
        return np.zeros(batch, np.int64)
    check_count(len(step.params_index), "params_index", batch, PER_REQUEST)
    return int_column(step.params_index, "params_index", 0, len(step.params), reason=Reason.INDEX_OUT_OF_RANGE)


def seed_columns(step: Step, batch: int) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """[B] seeds, 0 where there is none, and [B] whether there is one.

    Raises:
        StepRefused: SHAPE_MISMATCH or PARAMETER_OUT_OF_RANGE.
    """
    if step.seeds is None:
        return np.zeros(batch, np.uint64), np.zeros(batch, bool)
    check_count(len(step.seeds), "seeds", batch, PER_REQUEST)
    return uint64_column(step.seeds, "seeds")


def position_column(step: Step, lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """[B] positions, for requests of [B] draft lengths.

    Raises:
        StepRefused: SHAPE_MISMATCH or PARAMETER_OUT_OF_RANGE.
    """
    if step.positions is None:
        return np.zeros(len(lengths), np.uint64)
    check_count(len(step.positions), "positions", len(lengths), PER_REQUEST)
    positions, given = uint64_column(step.positions, "positions")
    # One look at all of them is enough for nearly every step, and takes a quarter of the time.
    if positions.max() < _FAR and given.all():
        return positions
    beyond = ~given | (positions > np.uint64(2**64 - 1) - lengths.astype(np.uint64))
    if beyond.any():
        request = int(beyond.argmax())
        legal = f"in [0, 2^64 - {lengths[request]}): position + draft length must stay below 2^64"
        raise outside("positions", step.positions[request], legal, request=request)
    return positions


def _block_index(step: Step, batch: int) -> NDArray[np.int64]:
    blocks = len(step.draft_blocks)
    if step.draft_block_index is None:
        return np.full(batch, 0 if blocks == 1 else -1, np.int64)
    check_count(len(step.draft_block_index), "draft_block_index", batch, PER_REQUEST)
    return int_column(step.draft_block_index, "draft_block_index", -1, blocks, reason=Reason.INDEX_OUT_OF_RANGE)


def _check_blocks(step: Step, lengths: NDArray[np.int64], block_index: NDArray[np.int64]) -> NDArray[np.int64]:
    """[B] int64, the first row in its block of each request: requests use their block's rows in request order."""
    for b, block in enumerate(step.draft_blocks):
        field = f"draft_blocks[{b}].logits"
        # Dtypes are per step: the first block's is everyone's.
        check_matrix(block.logits, field, LOGIT_DTYPES if b == 0 else (step.draft_blocks[0].logits.dtype,))
        check_place(block.logits, field, step.target_logits.device)
        if block.logits.shape[1] == 0:
            raise refusal(Reason.EMPTY_VOCABULARY, f"{field} has no columns; it must have at least one", field=field)
        if block.id_map is not None:
            map_field, width = f"draft_blocks[{b}].draft_id_map", block.logits.shape[1]
            check_vector(block.id_map.ids, map_field, ID_DTYPES, width, "one for each column of the draft logits")
            vocab_size = step.target_logits.shape[1]
            if block.id_map.vocab_size != vocab_size:
                what = f"{map_field} was made for {block.id_map.vocab_size} target ids; target_logits have {vocab_size}"
                raise refusal(Reason.SHAPE_MISMATCH, what, field=map_field)
    if len(step.draft_blocks) == 1 and block_index.min() == 0:
        rows, first = lengths.sum(keepdims=True), prefix_sum(lengths)[:-1]
    else:
        # Bin 0 gathers the requests without draft logits (index -1).
        rows = np.bincount(block_index + 1, lengths, len(step.draft_blocks) + 1).astype(np.int64)
        order = np.argsort(block_index, kind="stable")
        first = np.empty_like(lengths)
        first[order] = prefix_sum(lengths[order])[:-1] - prefix_sum(rows)[block_index[order] + 1]
        rows = rows[1:]
    for b, block in enumerate(step.draft_blocks):
        what_for = "the sum of draft_lengths of the requests that use the block"
        check_count(block.logits.shape[0], f"draft_blocks[{b}].logits", int(rows[b]), what_for)
    return first
