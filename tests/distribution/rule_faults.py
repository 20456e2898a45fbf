"""Faults in processing, methods and reports: each breaks one rule and leaves the rest of the step alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sampler_kernels.backends import Backend
from sampler_kernels.batch import Batch, MethodCode
from sampler_kernels.outcome import Cut, Decision, TopLogits
from sampler_kernels.planning.plan import Plan
from sampler_kernels.processing import EditSources, RowFilters, Segments
from sampler_kernels.processors.entries import Entries
from sampler_kernels.result import FinishReason, Status
from tests.distribution.planting import Plant

Edit = Callable[[Entries, Batch], Entries]
_NO_ID = -5
_ID_BITS = 0x7FFFFFFF


def in_entries(fault: Edit) -> Plant:
    """What is known of each edited id is changed before values are computed."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = Entries.of
        patch.setattr(Entries, "of", staticmethod(lambda batch, sources: fault(right(batch, sources), batch)))

    return plant


def prompt_counted(entries: Entries, _: Batch) -> Entries:
    """Frequency and presence take the prompt for output."""
    return replace(entries, count=np.maximum(entries.count, entries.seen))


def prompt_not_seen(entries: Entries, _: Batch) -> Entries:
    """Repetition looks at output and drafts alone."""
    return replace(entries, seen=entries.count > 0)


def window_forgotten(entries: Entries, _: Batch) -> Entries:
    """Penalties do not see the draft tokens before a row."""
    return replace(entries, window=np.full_like(entries.window, -1))


def counted_once(entries: Entries, _: Batch) -> Entries:
    """An output id counts once, however often it occurred."""
    return replace(entries, count=np.minimum(entries.count, 1))


def bias_after_temperature(entries: Entries, batch: Batch) -> Entries:
    """Adds the bias to x / T, where it has to be (x + b) / T."""
    temperature = batch.temperature.numpy()[entries.key // batch.vocab_size]
    return replace(entries, bias=(entries.bias * np.where(temperature > 0, temperature, 1)).astype(np.float32))


def in_bad_words(fault: Callable[[Batch, EditSources], tuple[Batch, EditSources]]) -> Plant:
    """Bad words are matched against another text."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        module = import_module("sampler_kernels.processors.reference")
        right = module.matches
        patch.setattr(module, "matches", lambda batch, sources: right(*fault(batch, sources)))

    return plant


def words_on_output_only(batch: Batch, sources: EditSources) -> tuple[Batch, EditSources]:
    """The prompt is no part of the text."""
    none = Segments(sources.prompt.values[:0], torch.zeros_like(sources.prompt.cu))
    return batch, replace(sources, prompt=none)


def words_before_the_window(batch: Batch, sources: EditSources) -> tuple[Batch, EditSources]:
    """Draft tokens are no part of the text."""
    return replace(batch, draft_token_ids=torch.full_like(batch.draft_token_ids, _NO_ID)), sources


def min_tokens_one_more(plan: Plan) -> Plan:
    """Stop ids are masked on one row too many."""
    sources = plan.batch.edit_sources
    if sources is None:
        return plan
    more = replace(sources, masked_rows=sources.masked_rows + (sources.masked_rows > 0))
    return replace(plan, batch=replace(plan.batch, edit_sources=more))


def bonus_row_unmasked(plan: Plan) -> Plan:
    """Masks end with the draft tokens."""
    batch = plan.batch
    processing = batch.target.processing
    if processing is None or processing.masks is None:
        return plan
    row = processing.masks.row.clone()
    row[batch.cu_num_logits[1:].long() - 1] = -1
    masked = replace(processing, masks=replace(processing.masks, row=row))
    return replace(plan, batch=replace(batch, target=replace(batch.target, processing=masked)))


def margin_strict(plan: Plan) -> Plan:
    """A logit exactly at relaxed's margin falls."""
    lossy = plan.batch.lossy
    if lossy is None:
        return plan
    less = replace(lossy, relaxed_margin=torch.nextafter(lossy.relaxed_margin, torch.zeros_like(lossy.relaxed_margin)))
    return replace(plan, batch=replace(plan.batch, lossy=less))


def residual_forgets_scale(batch: Batch, decision: Decision) -> tuple[Batch, Decision]:
    """max(p - q, 0) after block, where it has to be max(c p - q, 0)."""
    return batch, replace(decision, scale=torch.ones_like(decision.scale))


def block_takes_smallest(patch: pytest.MonkeyPatch) -> None:
    """Of block's tests the first that holds decides."""
    module = import_module("sampler_kernels.rejection.block")
    right = module._accepted

    def accepted(columns: Any, rows: Any, draft_rows: Any, first: Any, k: Any, c: Any, good: Any) -> Any:  # noqa: ANN401
        t = np.zeros_like(k)
        for i in range(1, c.shape[1]):
            alone = np.zeros_like(c)
            alone[:, i] = c[:, i]
            passes = right(columns, rows, draft_rows, first, k, alone, good) == i
            t = np.where((t == 0) & passes, i, t)
        return t

    patch.setattr(module, "_accepted", accepted)


def typical_of_raw_row(patch: pytest.MonkeyPatch) -> None:
    """Typical judges the client's row at temperature 1."""
    rules = import_module("sampler_kernels.rejection.reference").RULES
    right = rules[MethodCode.TYPICAL]

    def typical(wave: Any) -> Any:  # noqa: ANN401
        raw = type(wave.rows)(wave.rows.rows.raw, torch.ones(len(wave.rows.rows), dtype=torch.float64), raw=False)
        return right(type(wave).of(wave.columns, raw, wave.draft_rows, wave.row))

    patch.setitem(rules, MethodCode.TYPICAL, typical)


def relaxed_rank_strict(patch: pytest.MonkeyPatch) -> None:
    """Ties do not count in relaxed's rank."""
    module = import_module("sampler_kernels.rejection.rules")
    right = module.ranks_of

    def ranks_of(rows: Any, vocab: int, row: Any, group_max: Any, logit: Any) -> Any:  # noqa: ANN401
        return right(rows, vocab, row, group_max, np.nextafter(logit, np.float32(np.inf))) + 1

    patch.setattr(module, "ranks_of", ranks_of)


def in_cut(fault: Callable[[Callable[..., None], RowFilters, Any], None]) -> Plant:
    """Filters cut otherwise: the fault is given the right cut, the filters and what is known of the rows."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        module = import_module("sampler_kernels.stats.reference")
        right = module.cut
        patch.setattr(module, "cut", lambda filters, given: fault(right, filters, given))

    return plant


def min_p_before_temperature(right: Callable[..., None], filters: RowFilters, given: Any) -> None:  # noqa: ANN401
    """Ratios are taken of the distribution at temperature 1."""
    right(filters, replace(given, temperature=np.ones_like(given.temperature)))


def top_k_keeps_ties(right: Callable[..., None], filters: RowFilters, given: Any) -> None:  # noqa: ANN401
    """Everything that equals the k-th stays."""
    right(filters, given)
    filters.cut_id[torch.from_numpy(given.which)] = _ID_BITS


def top_p_by_the_mass_after(right: Callable[..., None], filters: RowFilters, given: Any) -> None:  # noqa: ANN401
    """Searches from the wrong side: the token that reaches top_p is dropped, unless it is the first."""
    right(filters, given)
    for n, row in enumerate(given.which.tolist()):
        if filters.top_p[row] == 1:
            continue
        x = given.rows.row(row).float()
        order = torch.argsort(-x, stable=True)
        last = int((order == int(filters.cut_id[row])).nonzero()[0, 0])
        before = order[max(0, last - 1)]
        assert x[before] <= float(given.maximum[n])
        filters.cut_value[row], filters.cut_id[row] = x[before], before.int()


def top_p_of_the_whole_row(right: Callable[..., None], filters: RowFilters, given: Any) -> None:  # noqa: ANN401
    """top-p works on what min-p left, not on what top-k left: the shorter head of the two stays."""
    alone = replace(filters, top_k=torch.zeros_like(filters.top_k), cut_value=filters.cut_value.clone())
    alone = replace(alone, cut_id=filters.cut_id.clone())
    whole = replace(filters, top_p=torch.ones_like(filters.top_p))
    right(alone, given)
    right(whole, given)
    shorter = (alone.cut_value > whole.cut_value) | (
        (alone.cut_value == whole.cut_value) & (alone.cut_id < whole.cut_id)
    )
    filters.cut_value.copy_(torch.where(shorter, alone.cut_value, whole.cut_value))
    filters.cut_id.copy_(torch.where(shorter, alone.cut_id, whole.cut_id))


def stop_after_one_more(backend: Backend) -> Backend:
    """The token after a stop id comes too."""

    def cut(batch: Batch, decision: Decision, emitted: Tensor) -> Cut:
        right = backend.cut(batch, decision, emitted)
        uncut = torch.where(decision.status == Status.OK, decision.num_accepted + 1, 0)
        kept = torch.where(right.finish_reason == FinishReason.STOP, torch.minimum(right.kept + 1, uncut), right.kept)
        return replace(right, emitted=torch.where(_within(batch, kept), emitted, -1), kept=kept.int())

    return replace(backend, cut=cut)


def length_wins(backend: Backend) -> Backend:
    """A stop id that is the last token allowed is reported as the limit."""

    def cut(batch: Batch, decision: Decision, emitted: Tensor) -> Cut:
        right = backend.cut(batch, decision, emitted)
        assert batch.cuts is not None
        full = right.kept == batch.cuts.max_tokens
        return replace(right, finish_reason=torch.where(full, int(FinishReason.LENGTH), right.finish_reason).int())

    return replace(backend, cut=cut)


def sums_of_cut_tokens(patch: pytest.MonkeyPatch) -> None:
    """Cumulative logprobs include tokens that were cut off."""
    loaders = import_module("sampler_kernels.backends")._LOADERS
    right_backend, module = loaders["cpu"](), import_module("sampler_kernels.verify")
    right_collect = module.collect

    def cut(batch: Batch, decision: Decision, emitted: Tensor) -> Cut:
        right: Cut = right_backend.cut(batch, decision, emitted)
        return replace(right, emitted=emitted)

    def collect(planned: Any, decision: Any, emitted: Any, raw: Any, processed: Any, cut: Any) -> Any:  # noqa: ANN401
        if cut is None:
            return right_collect(planned, decision, emitted, raw, processed, cut)
        uncut = right_collect(planned, decision, emitted, raw, processed, None)
        left = torch.where(_within(planned.batch, cut.kept), emitted, -1)
        result = right_collect(planned, decision, left, raw, processed, replace(cut, emitted=left))
        modes = {m: replace(n, cumulative=uncut.logprobs[m].cumulative) for m, n in result.logprobs.items()}
        return replace(result, logprobs=modes)

    patch.setitem(loaders, "cpu", lambda: replace(right_backend, cut=cut))
    patch.setattr(module, "collect", collect)


def logprob_of_residual(backend: Backend) -> Backend:
    """A redrawn token's logprob is that of the row without the rejected token."""

    def topk_logprobs(batch: Batch, target_stats: Any, emitted: Tensor, **wishes: Any) -> TopLogits:  # noqa: ANN401
        found = backend.topk_logprobs(batch, target_stats, emitted, **wishes)
        table, sums = batch.target.raw if wishes["raw"] else batch.target, found.log_sum_exp.clone()
        for r, k in enumerate(batch.draft_lengths.tolist()):
            for j in range(k):
                row, x = int(batch.cu_num_logits[r]) + j, int(batch.draft_token_ids[int(batch.cu_drafts[r]) + j])
                if int(emitted[row]) not in (-1, x):
                    p = (table.row(row)[x].double() - sums[row]).exp()
                    sums[row] += torch.log1p(-p)
        return replace(found, log_sum_exp=sums)

    return replace(backend, topk_logprobs=topk_logprobs)


def raw_and_processed_exchanged(backend: Backend) -> Backend:
    """Processed numbers are those of the client's row."""

    def topk_logprobs(batch: Batch, target_stats: Any, emitted: Tensor, **wishes: Any) -> TopLogits:  # noqa: ANN401
        plain = replace(batch, target=replace(batch.target, processing=None))
        return backend.topk_logprobs(batch if wishes["raw"] else plain, target_stats, emitted, **wishes)

    return replace(backend, topk_logprobs=topk_logprobs)


def top_entries_by_highest_id(patch: pytest.MonkeyPatch) -> None:
    """Of equal entries of the top n the highest id comes first."""
    module = import_module("sampler_kernels.topk_logprobs.reference")
    key, id_of = module.order_key, module.id_of_key
    patch.setattr(module, "order_key", lambda values, ids: key(values, _ID_BITS - ids))
    patch.setattr(module, "id_of_key", lambda keys: _ID_BITS - id_of(keys))


def ranks_without_ties(patch: pytest.MonkeyPatch) -> None:
    """A rank counts what is larger, and not its equals."""
    module = import_module("sampler_kernels.topk_logprobs.reference")
    right = module.ranks_of

    def ranks_of(rows: Any, vocab: int, row: Any, group_max: Any, logit: Any) -> Any:  # noqa: ANN401
        return right(rows, vocab, row, group_max, np.nextafter(logit, np.float32(np.inf))) + 1

    patch.setattr(module, "ranks_of", ranks_of)


def supplied_sums_believed(patch: pytest.MonkeyPatch) -> None:
    """A supplied log-sum-exp is never held to its row."""
    patch.setattr(import_module("sampler_kernels.stats.supplied"), "TOLERANCE", np.inf)


def _within(batch: Batch, kept: Tensor) -> Tensor:
    """[N] bool, the rows of the tokens kept."""
    length = batch.draft_lengths.long() + 1
    j = torch.arange(int(length.sum())) - batch.cu_num_logits[:-1].long().repeat_interleave(length)
    return j < kept.long().repeat_interleave(length)
