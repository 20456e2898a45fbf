"""Logprobs in plain torch, without a sort: the maxima of groups say where the largest entries are."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.elements import Floats, Ints, chunks, id_of_key, load_at, order_key
from sampler_kernels.layout import GROUP
from sampler_kernels.outcome import RowStats, TopLogprobs
from sampler_kernels.rows import RowTable
from sampler_kernels.stats.reference import LazyRowStats
from sampler_kernels.stats.temperatures import target_temperature
from sampler_kernels.threads import one_thread

_COST = 16
"""How much more memory a candidate takes than an element of a row: its id, its key, and what keys are made from."""


@one_thread()
def topk_logprobs(
    batch: Batch,
    target_stats: RowStats | LazyRowStats,
    emitted: Tensor,
    *,
    top_n: int,
    ranks: bool,
    chosen_ids: Tensor | None,
) -> TopLogprobs:
    """Raw logprobs (natural, of the row as it came, at temperature 1) beside each emitted token.

    Args:
        batch: The step.
        target_stats: Of ``batch.target``, with raw sums.
        emitted: [N] int32, the token that each row emits, -1 for none. Other rows are not touched.
        top_n: Entries wanted of each row, 0..256; may exceed V.
        ranks: Whether ranks are wanted; 0 everywhere if not.
        chosen_ids: [N, c] int32, ids whose logprob is wanted beside each row's token, -1 for none (its value is NaN).
            None: c = 0.

    Returns:
        Row by row. Rows without a token hold NaN, rank 0 and id -1. An entry of -inf has no place among the largest.
    """
    rows, vocab = LazyRowStats.of(target_stats, batch.target, lambda: target_temperature(batch)), batch.vocab_size
    count, wanted = len(batch.target), 0 if chosen_ids is None else chosen_ids.shape[1]
    values, rank = np.full(count, math.nan, np.float32), np.zeros(count, np.int32)
    top_ids, top_values = np.full((count, top_n), -1, np.int32), np.full((count, top_n), math.nan, np.float32)
    chosen_values = np.full((count, wanted), math.nan, np.float32)

    row = (emitted.numpy() >= 0).nonzero()[0]
    if len(row):
        totals = rows.raw_totals(row)
        log_sum_exp = totals.maximum.astype(np.float64) + np.log(totals.total)
        logit = load_at(batch.target, row, emitted.numpy()[row].astype(np.int64)).numpy()
        values[row] = logit - log_sum_exp
        if ranks:
            rank[row] = _ranks(batch.target, vocab, row, rows.group_max(row), logit)
        if top_n:
            ids, logits = _largest(batch.target, vocab, row, rows.group_max(row), top_n)
            top_ids[row, : ids.shape[1]] = ids
            top_values[row, : ids.shape[1]] = np.where(ids >= 0, _logprobs(logits, log_sum_exp), math.nan)
        if chosen_ids is not None and wanted:
            ids = chosen_ids.numpy()[row].astype(np.int64)
            logits = load_at(batch.target, row, ids).numpy()
            chosen_values[row] = np.where(ids >= 0, _logprobs(logits, log_sum_exp), math.nan)
    return TopLogprobs(
        values=torch.from_numpy(values),
        ranks=torch.from_numpy(rank),
        top_ids=torch.from_numpy(top_ids),
        top_values=torch.from_numpy(top_values),
        chosen_values=torch.from_numpy(chosen_values),
    )


def _logprobs(logits: NDArray[np.float32], log_sum_exp: Floats) -> Floats:
    """[m, c], of the logits of m rows; the difference is taken in float64."""
    return logits - log_sum_exp[:, None]


def _largest(
    rows: RowTable, vocab: int, row: Ints, group_max: NDArray[np.float32], n: int
) -> tuple[Ints, NDArray[np.float32]]:
    """The n first ids in the order of each row, and their logits: [m, n'] each, n' = min(n, candidates).

    The n groups that come first by (maximum descending, index ascending) hold the n elements that come first by
    (value descending, id ascending): a group left out has n groups before it, each with an element before all of its
    own.

    Returns:
        Ids, -1 for an entry of -inf; logits.
    """
    n_groups = min(n, group_max.shape[1])
    taken = min(n, n_groups * min(GROUP, vocab))
    ids, logits = np.empty((len(row), taken), np.int64), np.empty((len(row), taken), np.float32)
    for at in chunks(np.arange(len(row)), n_groups * min(GROUP, vocab) * _COST):
        group_key = order_key(torch.from_numpy(group_max[at]), torch.arange(group_max.shape[1]))
        groups = id_of_key(group_key.topk(n_groups, sorted=False).values).numpy()
        candidate = _members(groups, vocab).reshape(len(at), -1)
        logit = load_at(rows, row[at], candidate)
        largest = order_key(logit, torch.from_numpy(candidate)).topk(taken)
        ids[at] = id_of_key(largest.values).numpy()
        logits[at] = logit.gather(1, largest.indices).numpy()
    return np.where(logits == -math.inf, -1, ids), logits


def _ranks(
    rows: RowTable, vocab: int, row: Ints, group_max: NDArray[np.float32], logit: NDArray[np.float32]
) -> NDArray[np.int32]:
    """[m]: how many elements of each row are >= a logit. Only groups whose maximum reaches it are read."""
    line, group = (group_max >= logit[:, None]).nonzero()
    counts = np.zeros(len(row), np.int32)
    for at in chunks(np.arange(len(line)), min(GROUP, vocab) * _COST):
        members = load_at(rows, row[line[at]], _members(group[at], vocab)).numpy()
        reached = (members >= logit[line[at], None]).sum(1)
        counts += np.bincount(line[at], reached, len(row)).astype(np.int32)
    return counts.clip(max=vocab)  # below -inf there is nothing, so there the columns past the end counted too


def _members(groups: Ints, vocab: int) -> Ints:
    """Ids of each group, along a new last dimension; those past the vocabulary's end read as -inf."""
    return groups[..., None] * GROUP + np.arange(min(GROUP, vocab))
