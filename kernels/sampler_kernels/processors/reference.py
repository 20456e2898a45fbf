"""Biases, minimum lengths, penalties and bad words in numpy: from what requests bring to one value an edited element.

The order is the contract's: mask, bias, min-tokens, penalties, bad words. Everything else of a row stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.elements import load_at
from sampler_kernels.processing import EditSources, Processing, RowEdits, Segments
from sampler_kernels.processors.bad_words import matches
from sampler_kernels.rows import RowTable
from sampler_kernels.segments import Ints, spread

Logits = NDArray[np.float32]

_EXTRA, _PROMPT, _OUTPUT = 0, 1, 2
"""What an id is known from, in ascending order of what it means: the largest of a run says all about it."""


def processors(batch: Batch) -> RowTable:
    """The target rows with their edits.

    Args:
        batch: The step; its ``edit_sources`` say what there is to do.

    Returns:
        ``batch.target``, edited; as it is where nothing is.
    """
    if batch.edit_sources is None:
        return batch.target
    processing = batch.target.processing or Processing()
    return replace(batch.target, processing=replace(processing, edits=LazyEdits(batch, batch.edit_sources)))


class LazyEdits:
    """Edits whose ids are found at once, and whose values are computed when a row is first read.

    Args:
        batch: The step.
        sources: What its requests bring.
    """

    def __init__(self, batch: Batch, sources: EditSources) -> None:
        lengths, rows = batch.draft_lengths.numpy().astype(np.int64), batch.draft_lengths.numpy().astype(np.int64) + 1
        self._rows = batch.target.unfiltered
        self._cu_drafts = batch.cu_drafts.numpy().astype(np.int64)
        self._repetition, self._frequency = sources.repetition.numpy(), sources.frequency.numpy()
        self._presence, self._masked_rows = sources.presence.numpy(), sources.masked_rows.numpy()
        request = np.repeat(np.arange(len(rows)), rows)
        self._j = np.arange(len(request)) - batch.cu_num_logits.numpy().astype(np.int64)[request]

        penalised = (self._repetition != 1) | (self._frequency != 0) | (self._presence != 0)
        vocab = batch.vocab_size
        drafts = batch.draft_token_ids.numpy().astype(np.int64)
        draft_request = np.repeat(np.arange(len(lengths)), lengths)
        word_last = sources.words.values.numpy()[sources.words.cu.numpy()[1:] - 1].astype(np.int64)
        word_request = sources.word_request.numpy()
        keys = np.concatenate(
            [
                _keys(drafts, draft_request, penalised, vocab, _EXTRA),
                _keys(word_last, word_request, None, vocab, _EXTRA),
                *(_segment_keys(segments, None, vocab, _EXTRA) for segments in (sources.bias, sources.stops)),
                _segment_keys(sources.prompt, penalised, vocab, _PROMPT),
                *(_segment_keys(segments, penalised, vocab, _OUTPUT) for segments in (sources.output, sources.counted)),
            ]
        )
        keys.sort()
        owned = keys >> 2  # request * V + id
        last = np.flatnonzero(np.append(owned[1:] != owned[:-1], [True] * (len(owned) > 0)))
        self._key = owned[last]
        outputs = np.cumsum((keys & 3) == _OUTPUT)[last]
        self._count = np.diff(outputs, prepend=0)
        self._seen = (keys[last] & 3) > _EXTRA
        self._count_pairs(sources, penalised, vocab)
        self._bias, self._stop = np.zeros(len(last), np.float32), np.zeros(len(last), np.bool_)
        bias_request, stop_request = _owner(sources.bias), _owner(sources.stops)
        self._bias[self._find(bias_request * vocab + sources.bias.values.numpy())] = sources.bias_values.numpy()
        self._stop[self._find(stop_request * vocab + sources.stops.values.numpy())] = True
        inside = penalised[draft_request] & (drafts >= 0) & (drafts < vocab)
        self._window = np.where(inside, self._find(draft_request * vocab + np.where(inside, drafts, 0)), -1)

        cu = np.searchsorted(self._key, np.arange(len(rows) + 1) * vocab)
        first = np.zeros(len(request) + 1, np.int64)
        np.cumsum(np.diff(cu)[request], out=first[1:])
        row, word = matches(batch, sources)
        self._bad_row, self._bad_entry = row, self._find((word_request * vocab + word_last)[word])
        self._known = first[1:] == first[:-1]
        self._edits = RowEdits(
            request=torch.from_numpy(request),
            ids=torch.from_numpy(self._key % vocab),
            cu=torch.from_numpy(cu),
            first=torch.from_numpy(first),
            values=torch.empty(int(first[-1])),
        )

    def of(self, which: Tensor) -> RowEdits:
        """The edits of all rows, with the values of the rows ``which`` ([n] int64) filled in."""
        row = which.numpy()
        row = row[~self._known[row]]
        if len(row):
            self._compute(np.unique(row))
        return self._edits

    def _compute(self, rows: Ints) -> None:
        """The values of some rows, all entries of all rows at once."""
        edits, cu = self._edits, self._edits.cu.numpy()
        of_row = edits.request.numpy()[rows]
        low = cu[of_row]
        entries = cu[of_row + 1] - low
        line, entry = spread(low, entries)
        first = edits.first.numpy()[rows]
        start = (
            np.cumsum(cu[of_row + 1] - low) - (cu[of_row + 1] - low) - low
        )  # of a row's entries here, less the first
        request, j = of_row[line], self._j[rows][line]
        given = load_at(self._rows, rows[line], edits.ids.numpy()[entry]).numpy()

        count = self._count[entry]
        before, place = spread(self._cu_drafts[of_row], self._j[rows])
        drafted = self._window[place]
        touched = drafted >= 0
        np.add.at(count, start[before[touched]] + drafted[touched], 1)

        with np.errstate(all="ignore"):  # a bad element may do anything, and stays bad
            masked = given + np.float32(-math.inf)
            x = given + self._bias[entry]
            x = np.where(self._stop[entry] & (j < self._masked_rows[request]), masked, x)
            repetition = self._repetition[request]
            repeated = np.where(x > 0, x / repetition, x * repetition)
            x = np.where(self._seen[entry] | (count > 0), repeated, x)
            penalty = self._frequency[request] * count.astype(np.float32) + self._presence[request]
            x = np.where(count > 0, x - penalty, x)
            begin, end = np.searchsorted(self._bad_row, rows), np.searchsorted(self._bad_row, rows, side="right")
            owner, pair = spread(begin, end - begin)
            at = start[owner] + self._bad_entry[pair]
            x[at] = masked[at]
        edits.values.numpy()[(first - low)[line] + entry] = x
        self._known[rows] = True

    def _find(self, key: Ints) -> Ints:
        """Where keys that are known to be there stand."""
        return np.searchsorted(self._key, key)

    def _count_pairs(self, sources: EditSources, penalised: NDArray[np.bool_], vocab: int) -> None:
        """Adds the counts that came as numbers; each of their ids has been counted once as an id."""
        ids, request = sources.counted.values.numpy().astype(np.int64), _owner(sources.counted)
        kept = penalised[request] & (ids >= 0) & (ids < vocab)
        at = self._find(request[kept] * vocab + ids[kept])
        np.add.at(self._count, at, sources.counts.numpy()[kept] - 1)


def _owner(segments: Segments) -> Ints:
    """[len(values)], whose each value is."""
    cu = segments.cu.numpy()
    return np.repeat(np.arange(len(cu) - 1), np.diff(cu))


def _segment_keys(segments: Segments, of: NDArray[np.bool_] | None, vocab: int, kind: int) -> Ints:
    if not len(segments.values):
        return np.empty(0, np.int64)
    return _keys(segments.values.numpy().astype(np.int64), _owner(segments), of, vocab, kind)


def _keys(ids: Ints, request: Ints, of: NDArray[np.bool_] | None, vocab: int, kind: int) -> Ints:
    """(request * V + id) * 4 + kind, for those in the vocabulary, and of the requests asked about."""
    kept = (ids >= 0) & (ids < vocab)
    if of is not None and not of.all():
        kept &= of[request]
    if not kept.all():
        ids, request = ids[kept], request[kept]
    return (request * vocab + ids) << 2 | kind
