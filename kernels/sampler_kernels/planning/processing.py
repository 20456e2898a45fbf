"""Step -> Processing and EditSources: what parameter sets, masks and histories ask of the target rows, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.host import HostColumns, prefix_sum
from sampler_kernels.planning.sets import ProcessingSet, processing_set
from sampler_kernels.processing import EditRoom, EditSources, Occurrence, Processing, RowFilters, RowMasks, Segments
from sampler_kernels.segments import spread
from sampler_kernels.step import Ragged, Step

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class ProcessingPlan:
    """The processing of a step, before its columns are on the device.

    Attributes:
        step: The step.
        columns: What there is to upload, by name; nothing for a step that processes nothing.
    """

    step: Step
    columns: Arrays

    def processing(self, columns: Mapping[str, Tensor], device: torch.device) -> Processing | None:
        """Masks and filters of the target rows, None where there are none.

        Args:
            columns: The uploaded :attr:`columns`.
            device: Where they are.
        """
        masks = filters = None
        if "mask_row" in columns:
            masks = RowMasks(self._mask_words(columns, device), columns["mask_row"])
        if "top_k" in columns:
            rows = len(columns["top_k"])
            filters = RowFilters(
                log_min_p=columns["log_min_p"],
                top_k=columns["top_k"],
                top_p=columns["top_p"],
                cut_value=torch.empty(rows, dtype=torch.float32, device=device),
                cut_id=torch.full((rows,), torch.iinfo(torch.int32).max, dtype=torch.int32, device=device),
            )
            filters.cut_value.copy_(torch.where(filters.active, torch.inf, -torch.inf))
        return None if masks is None and filters is None else Processing(masks=masks, filters=filters)

    def sources(self, columns: Mapping[str, Tensor], device: torch.device) -> EditSources | None:
        """What edits are made from, None where nothing sparse is asked for. Arguments as of :meth:`processing`."""
        if "repetition" not in columns:
            return None
        counts = self.step.output_token_counts
        return EditSources(
            prompt=self._history(self.step.prompt_token_ids, "prompt", columns, device),
            output=self._history(self.step.output_token_ids, "output", columns, device),
            counted=self._history(None if counts is None else counts.ids, "counted", columns, device),
            counts=columns["counts"] if counts is None else counts.counts.to(device).long(),
            bias=Segments(columns["bias_ids"], columns["cu_bias"]),
            bias_values=columns["bias_values"],
            stops=Segments(columns["stop_ids"], columns["cu_stops"]),
            masked_rows=columns["masked_rows"],
            words=Segments(columns["word_ids"], columns["cu_words"]),
            word_request=columns["word_request"],
            repetition=columns["repetition"],
            frequency=columns["frequency"],
            presence=columns["presence"],
            room=self._room(columns),
        )

    def _room(self, columns: Mapping[str, Tensor]) -> EditRoom:
        entries, values = self.columns["entry_cu"], self.columns["value_first"]
        return EditRoom(
            occurrence_cu=columns["occurrence_cu"],
            last_ids=columns["last_ids"],
            entry_cu=columns["entry_cu"],
            value_first=columns["value_first"],
            row_request=columns["row_request"],
            num_entries=int(entries[-1]),
            most_entries=int(np.diff(entries).max()),
            num_values=int(values[-1]),
        )

    def _mask_words(self, columns: Mapping[str, Tensor], device: torch.device) -> Tensor:
        """The client's masks, then those of parameter sets, then the lines in which both must allow an id."""
        parts = [columns["mask_words"]]
        if self.step.token_bitmask is not None:
            parts.insert(0, self.step.token_bitmask.to(device))
            parts.append(parts[0][columns["both_given"]] & parts[1][columns["both_listed"]])
        parts = [part for part in parts if len(part)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @staticmethod
    def _history(history: Ragged | None, name: str, columns: Mapping[str, Tensor], device: torch.device) -> Segments:
        values = columns[f"{name}_ids"] if history is None else history.values.to(device)
        return Segments(values, columns[f"cu_{name}"])


def processing_plan(step: Step, host: HostColumns) -> ProcessingPlan:
    """Lay out the processing of a checked step.

    Args:
        step: The step.
        host: Its columns.
    """
    sets = [processing_set(params, step.target_logits.shape[1]) for params in step.params]
    columns: Arrays = {}
    if step.token_bitmask is not None or any(len(one.masks) for one in sets):
        columns |= _masks(step, host, sets)
    if any(one.filters for one in sets):
        rows = np.repeat(host.params_index, host.draft_lengths + 1)
        columns["log_min_p"] = np.array([one.log_min_p for one in sets], np.float64)[rows]
        columns["top_k"] = np.array([one.top_k for one in sets], np.int64)[rows]
        columns["top_p"] = np.array([one.top_p for one in sets], np.float64)[rows]
    if any(one.edits for one in sets):
        columns |= _edits(step, host, sets)
    return ProcessingPlan(step, columns)


def _masks(step: Step, host: HostColumns, sets: Sequence[ProcessingSet]) -> Arrays:
    """The masks that parameter sets list, and which mask each row has."""
    listed = prefix_sum(np.array([len(one.masks) for one in sets], np.int64))
    request = np.repeat(np.arange(len(host.draft_lengths)), host.draft_lengths + 1)
    of_row = host.params_index[request]
    count = np.diff(listed)[of_row]
    j = np.arange(len(request)) - host.cu_num_logits[request]
    own = np.where(count > 0, listed[of_row] + np.where(count > 1, j, 0), -1)
    words = np.concatenate([one.masks for one in sets])
    if step.token_bitmask_index is None or step.token_bitmask is None:
        return {"mask_words": words, "mask_row": own.astype(np.int32)}
    given = np.asarray(step.token_bitmask_index, np.int64)
    first = len(step.token_bitmask)  # of the listed ones, in the joint table
    both = (given >= 0) & (own >= 0)
    row = np.where(own >= 0, own + first, given)
    row[both] = first + len(words) + np.arange(both.sum())
    return {
        "mask_words": words,
        "mask_row": row.astype(np.int32),
        "both_given": given[both],
        "both_listed": own[both],
    }


def _edits(step: Step, host: HostColumns, sets: Sequence[ProcessingSet]) -> Arrays:
    """Everything sparse, of each request."""
    index, batch = host.params_index, len(host.params_index)
    bias_cu, bias = _lists([one.bias_ids for one in sets], index)
    stop_cu, stops = _lists([one.stop_ids for one in sets], index)
    lengths_cu, words = _lists([one.word_lengths for one in sets], index)
    _, word_ids = _lists([one.word_ids for one in sets], index)
    min_tokens = np.array([one.min_tokens for one in sets], np.int64)[index]
    columns: Arrays = {
        "bias_ids": bias,
        "cu_bias": bias_cu,
        "bias_values": _lists([one.bias_values for one in sets], index)[1],
        "stop_ids": stops,
        "cu_stops": stop_cu,
        "masked_rows": np.maximum(min_tokens - _output_lengths(step, batch), 0),
        "word_ids": word_ids,
        "cu_words": prefix_sum(words),
        "word_request": np.repeat(np.arange(batch), np.diff(lengths_cu)),
        "repetition": np.array([one.repetition for one in sets], np.float32)[index],
        "frequency": np.array([one.frequency for one in sets], np.float32)[index],
        "presence": np.array([one.presence for one in sets], np.float32)[index],
    }
    counted = None if step.output_token_counts is None else step.output_token_counts.ids
    for name, history in (("prompt", step.prompt_token_ids), ("output", step.output_token_ids), ("counted", counted)):
        columns[f"{name}_ids"] = np.empty(0, np.int64)
        columns[f"cu_{name}"] = np.zeros(batch + 1, np.int64) if history is None else np.array(history.cu, np.int64)
    columns["counts"] = np.empty(0, np.int64)
    last_cu, columns["last_ids"] = _lists([one.word_ids[np.cumsum(one.word_lengths) - 1] for one in sets], index)
    return columns | _room(step, host, columns, last_cu)


def _room(step: Step, host: HostColumns, columns: Arrays, cu_last: NDArray[np.int64]) -> Arrays:
    """The columns of :class:`EditRoom`: every occurrence may be an entry, but no id of a request is two."""
    by_kind = {
        Occurrence.PROMPT: columns["cu_prompt"],
        Occurrence.OUTPUT: columns["cu_output"],
        Occurrence.COUNTED: columns["cu_counted"],
        Occurrence.BIAS: columns["cu_bias"],
        Occurrence.STOP: columns["cu_stops"],
        Occurrence.WORD: cu_last,
        Occurrence.DRAFT: host.cu_drafts,
    }
    lengths = np.stack([np.diff(by_kind[kind]) for kind in Occurrence])
    neutral = (columns["repetition"] == 1) & (columns["frequency"] == 0) & (columns["presence"] == 0)
    makes_entries = np.ones(lengths.shape, np.bool_)
    makes_entries[[Occurrence.PROMPT, Occurrence.OUTPUT, Occurrence.COUNTED, Occurrence.DRAFT]] = ~neutral
    entries = np.minimum((lengths * makes_entries).sum(0), step.target_logits.shape[1])
    rows = host.draft_lengths + 1
    return {
        "occurrence_cu": prefix_sum(lengths.reshape(-1)),
        "entry_cu": prefix_sum(entries),
        "value_first": prefix_sum(np.repeat(entries, rows)),
        "row_request": np.repeat(np.arange(len(rows), dtype=np.int32), rows),
    }


def _lists(lists: Sequence[NDArray[Any]], index: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Each request's list, end to end, with the prefix sum of their lengths; ``index`` [B] into ``lists``."""
    cu = prefix_sum(np.array([len(one) for one in lists], np.int64))
    length = np.diff(cu)[index]
    _, place = spread(cu[index], length)
    return prefix_sum(length), np.concatenate(lists)[place]


def _output_lengths(step: Step, batch: int) -> NDArray[np.int64]:
    """[B] tokens that each request has output before this step."""
    lengths = np.zeros(batch, np.int64)
    if step.output_token_ids is not None:
        lengths = np.diff(np.asarray(step.output_token_ids.cu, np.int64)).astype(np.int64)
    if step.output_token_counts is not None:
        lengths += step.output_token_counts.totals
    if step.num_output_tokens is not None:
        given = np.asarray(step.num_output_tokens, np.int64)
        lengths = np.where(given >= 0, given, lengths)
    return lengths
