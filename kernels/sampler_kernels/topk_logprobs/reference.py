"""Logprobs in plain torch, without a sort: the maxima of groups say where the largest entries are."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.elements import Ints, chunks, id_of_key, load_at, load_groups, members, order_key
from sampler_kernels.layout import GROUP
from sampler_kernels.outcome import RowStats, TopLogits
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
    raw: bool,
    top_n: int,
    ranks: bool,
    chosen_ids: Tensor | None,
) -> TopLogits:
    """What the logprobs of emitted tokens are made from, of rows as the client gave them or as processed.

    Args:
        batch: The step.
        target_stats: Of ``batch.target``; with raw sums if ``raw``.
        emitted: [N] int32, the token that each row emits, -1 for none. Other rows are not touched.
        raw: Whether rows are taken as the client gave them, at temperature 1, or as processed.
        top_n: Entries wanted of each row, 0..256; may exceed V.
        ranks: Whether ranks are wanted; 0 everywhere if not.
        chosen_ids: [N, c] int32, ids whose logit is wanted beside each row's token, -1 for none (its value is NaN).
            None: c = 0.

    Returns:
        Row by row. Rows without a token hold NaN, rank 0 and id -1. An entry of -inf has no place among the largest.
    """
    rows, vocab = LazyRowStats.of(target_stats, batch.target, lambda: target_temperature(batch)), batch.vocab_size
    table = batch.target.raw if raw else batch.target
    count, wanted = len(table), 0 if chosen_ids is None else chosen_ids.shape[1]
    logits, rank = np.full(count, math.nan, np.float32), np.zeros(count, np.int32)
    log_sum_exp = np.full(count, math.nan)
    top_ids, top_logits = np.full((count, top_n), -1, np.int32), np.full((count, top_n), math.nan, np.float32)
    chosen_logits = np.full((count, wanted), math.nan, np.float32)

    row = (emitted.numpy() >= 0).nonzero()[0]
    if len(row):
        of_view = rows.raw_rows() if raw else rows
        log_sum_exp[row] = rows.log_sum_exp(row, raw=raw)
        logit = load_at(table, row, emitted.numpy()[row].astype(np.int64)).numpy()
        logits[row] = logit
        if ranks:
            rank[row] = ranks_of(table, vocab, row, of_view.group_max(row), logit)
        if top_n:
            ids, largest = _largest(table, vocab, row, of_view.group_max(row), top_n)
            top_ids[row, : ids.shape[1]] = ids
            top_logits[row, : ids.shape[1]] = np.where(ids >= 0, largest, math.nan)
        if chosen_ids is not None and wanted:
            ids = chosen_ids.numpy()[row].astype(np.int64)
            chosen_logits[row] = np.where(ids >= 0, load_at(table, row, ids).numpy(), math.nan)
    return TopLogits(
        logits=torch.from_numpy(logits),
        log_sum_exp=torch.from_numpy(log_sum_exp),
        ranks=torch.from_numpy(rank),
        top_ids=torch.from_numpy(top_ids),
        top_logits=torch.from_numpy(top_logits),
        chosen_logits=torch.from_numpy(chosen_logits),
    )


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
        candidate = members(groups, vocab).reshape(len(at), -1)
        logit = load_groups(rows, row[at], groups).flatten(1)
        largest = order_key(logit, torch.from_numpy(candidate)).topk(taken)
        ids[at] = id_of_key(largest.values).numpy()
        logits[at] = logit.gather(1, largest.indices).numpy()
    return np.where(logits == -math.inf, -1, ids), logits


def ranks_of(
    rows: RowTable, vocab: int, row: Ints, group_max: NDArray[np.float32], logit: NDArray[np.float32]
) -> NDArray[np.int32]:
    """[m]: how many elements of each row are >= a logit. Only groups whose maximum reaches it are read."""
    line, group = (group_max >= logit[:, None]).nonzero()
    counts = np.zeros(len(row), np.int32)
    for at in chunks(np.arange(len(line)), min(GROUP, vocab) * _COST):
        reached = (load_groups(rows, row[line[at]], group[at]).numpy() >= logit[line[at], None]).sum(1)
        counts += np.bincount(line[at], reached, len(row)).astype(np.int32)
    return counts.clip(max=vocab)  # below -inf there is nothing, so there the columns past the end counted too
