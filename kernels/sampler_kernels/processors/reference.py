"""Biases, minimum lengths, penalties and bad words in numpy: from what requests bring to one value an edited element.

The order is the contract's: mask, bias, min-tokens, penalties, bad words. Everything else of a row stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.elements import load_at
from sampler_kernels.processing import EditSources, Processing, RowEdits
from sampler_kernels.processors.bad_words import matches
from sampler_kernels.processors.entries import Entries
from sampler_kernels.rows import RowTable
from sampler_kernels.segments import Ints, spread


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
        requests, vocab = len(batch.draft_lengths), batch.vocab_size
        self._masked = batch.target.unfiltered
        self._sources = sources
        self._entries = Entries.of(batch, sources)
        self._cu_drafts = batch.cu_drafts.numpy().astype(np.int64)
        request = np.repeat(np.arange(requests), batch.draft_lengths.numpy() + 1)
        self._j = np.arange(len(request)) - batch.cu_num_logits.numpy().astype(np.int64)[request]
        self._bad_row, word = matches(batch, sources)
        self._bad_entry = self._entries.word[word]

        cu = np.searchsorted(self._entries.key, np.arange(requests + 1) * vocab)
        first = np.zeros(len(request) + 1, np.int64)
        np.cumsum(np.diff(cu)[request], out=first[1:])
        self._known = first[1:] == first[:-1]
        self._edits = RowEdits(
            request=torch.from_numpy(request),
            ids=torch.from_numpy(self._entries.key % vocab),
            keys=torch.from_numpy(self._entries.key),
            vocab_size=vocab,
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
        """Fills in the values of some rows, all entries of all of them at once."""
        edits, entries, sources = self._edits, self._entries, self._sources
        of_row = edits.request.numpy()[rows]
        low = edits.cu.numpy()[of_row]
        length = edits.cu.numpy()[of_row + 1] - low
        line, entry = spread(low, length)
        here = np.cumsum(length) - length - low  # an entry of a row stands here at here + entry
        request, j = of_row[line], self._j[rows][line]
        given = load_at(self._masked, rows[line], edits.ids.numpy()[entry]).numpy()
        count = entries.count[entry]
        self._count_drafts(rows, of_row, here, count)

        repetition, frequency, presence, masked_rows = (
            t.numpy()[request] for t in (sources.repetition, sources.frequency, sources.presence, sources.masked_rows)
        )
        with np.errstate(all="ignore"):  # a bad element may do anything, and stays bad
            masked = given + np.float32(-math.inf)
            x = given + entries.bias[entry]
            x = np.where(entries.stop[entry] & (j < masked_rows), masked, x)
            x = np.where(entries.seen[entry] | (count > 0), np.where(x > 0, x / repetition, x * repetition), x)
            x = np.where(count > 0, x - (frequency * count.astype(np.float32) + presence), x)
        begin, end = (np.searchsorted(self._bad_row, rows, side=side) for side in ("left", "right"))
        owner, pair = spread(begin, end - begin)
        at = here[owner] + self._bad_entry[pair]
        x[at] = masked[at]
        edits.values.numpy()[(edits.first.numpy()[rows] - low)[line] + entry] = x
        self._known[rows] = True

    def _count_drafts(self, rows: Ints, of_row: Ints, here: Ints, count: Ints) -> None:
        """Adds the draft tokens before each row to the counts of its entries."""
        owner, place = spread(self._cu_drafts[of_row], self._j[rows])
        entry = self._entries.window[place]
        penalised = entry >= 0
        np.add.at(count, here[owner[penalised]] + entry[penalised], 1)
