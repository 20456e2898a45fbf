"""Logprobs in plain torch, without a sort: the maxima of groups say where the largest entries are."""

from __future__ import annotations

import math

import torch
from sampler_kernels.batch import Batch
from sampler_kernels.elements import chunks, id_of_key, load_at, order_key
from sampler_kernels.layout import GROUP
from sampler_kernels.outcome import RowStats, TopLogprobs
from sampler_kernels.rows import RowTable
from sampler_kernels.stats.reference import LazyRowStats, combine, take
from torch import Tensor


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
    rows, vocab = batch.target, batch.vocab_size
    wanted = 0 if chosen_ids is None else chosen_ids.shape[1]
    out = TopLogprobs(
        values=torch.full((len(rows),), math.nan),
        ranks=torch.zeros(len(rows), dtype=torch.int32),
        top_ids=torch.full((len(rows), top_n), -1, dtype=torch.int32),
        top_values=torch.full((len(rows), top_n), math.nan),
        chosen_values=torch.full((len(rows), wanted), math.nan),
    )
    row = (emitted >= 0).nonzero().squeeze(1)
    if not len(row):
        return out
    stats = take(target_stats, row, raw=True)
    assert stats.tile_raw_sum is not None, "raw logprobs need statistics with raw sums"
    log_sum_exp = _log_sum_exp(stats.tile_max, stats.tile_raw_sum)

    logit = load_at(rows, row, emitted[row].long())
    out.values[row] = _logprob(logit, log_sum_exp)
    if ranks:
        out.ranks[row] = _ranks(rows, vocab, row, stats.group_max, logit)
    if top_n:
        ids, logits = _largest(rows, vocab, row, stats.group_max, top_n)
        out.top_ids[row, : ids.shape[1]] = ids.int()
        out.top_values[row, : ids.shape[1]] = torch.where(ids >= 0, _logprob(logits, log_sum_exp[:, None]), math.nan)
    if chosen_ids is not None and wanted:
        chosen = chosen_ids[row].long()
        values = _logprob(load_at(rows, row, chosen), log_sum_exp[:, None])
        out.chosen_values[row] = torch.where(chosen >= 0, values, math.nan)
    return out


def _log_sum_exp(tile_max: Tensor, tile_raw_sum: Tensor) -> Tensor:
    """[n] float64, of rows at temperature 1."""
    totals = combine(tile_max, tile_raw_sum, torch.ones(len(tile_max), dtype=torch.float64))
    return totals.maximum.double() + totals.total.log()


def _logprob(logit: Tensor, log_sum_exp: Tensor) -> Tensor:
    """float32 logprob of a float32 logit; the difference is taken in float64."""
    return (logit.double() - log_sum_exp).float()


def _largest(rows: RowTable, vocab: int, row: Tensor, group_max: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The n first ids in the order of each row, and their logits: [m, n'] each, n' = min(n, candidates).

    The n groups that come first by (maximum descending, index ascending) hold the n elements that come first by
    (value descending, id ascending): a group left out has n groups before it, each with an element before all of its
    own.

    Returns:
        int64 ids, -1 for an entry of -inf; float32 logits.
    """
    n_groups = min(n, group_max.shape[1])
    taken = min(n, n_groups * min(GROUP, vocab))
    group_key = order_key(group_max, torch.arange(group_max.shape[1]))
    groups = id_of_key(group_key.topk(n_groups, sorted=False).values)
    ids = torch.empty((len(row), taken), dtype=torch.int64)
    for at in chunks(torch.arange(len(row)), n_groups * GROUP):
        candidate = _members(groups[at], vocab).flatten(1)
        key = order_key(load_at(rows, row[at], candidate), candidate)
        ids[at] = id_of_key(key.topk(taken).values)
    logits = load_at(rows, row, ids)
    return torch.where(logits == -math.inf, -1, ids), logits


def _ranks(rows: RowTable, vocab: int, row: Tensor, group_max: Tensor, logit: Tensor) -> Tensor:
    """[m] int32: how many elements of each row are >= a logit. Only groups whose maximum reaches it are read."""
    line, group = (group_max >= logit[:, None]).nonzero(as_tuple=True)
    counts = torch.zeros(len(row), dtype=torch.int32)
    for at in chunks(torch.arange(len(line)), min(GROUP, vocab)):
        members = load_at(rows, row[line[at]], _members(group[at], vocab))
        counts.index_add_(0, line[at], (members >= logit[line[at], None]).sum(1, dtype=torch.int32))
    return counts.clamp_(max=vocab)  # below -inf there is nothing, so there the columns past the end counted too


def _members(groups: Tensor, vocab: int) -> Tensor:
    """int64 ids of each group, along a new last dimension; those past the vocabulary's end read as -inf."""
    return groups[..., None] * GROUP + torch.arange(min(GROUP, vocab))
