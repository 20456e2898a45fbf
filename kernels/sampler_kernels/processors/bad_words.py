"""Bad words in numpy: on which rows the context ends in all but the last id of a word."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sampler_kernels.batch import Batch
from sampler_kernels.processing import EditSources, Segments
from sampler_kernels.segments import Ints, spread

_NO_ID = np.iinfo(np.int64).min
"""Stands before the beginning of a context; equal to no id."""


def matches(batch: Batch, sources: EditSources) -> tuple[Ints, Ints]:
    """The pairs of a row and a word whose beginning the row's context ends in, rows ascending.

    The context of row j is prompt, output and draft tokens 0 .. j - 1.

    Returns:
        Row numbers, and numbers of words.
    """
    cu, words, word_request = (t.numpy() for t in (sources.words.cu, sources.words.values, sources.word_request))
    if not len(word_request):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    length = np.diff(cu) - 1
    longest = int(length.max())
    used, place = np.unique(word_request, return_inverse=True)
    context = _contexts(batch, sources, used, longest)

    drafts = batch.draft_lengths.numpy().astype(np.int64)[word_request]
    word, j = spread(np.zeros(len(drafts), np.int64), drafts + 1)
    row = batch.cu_num_logits.numpy().astype(np.int64)[word_request[word]] + j
    for back in range(1, longest + 1):  # from the end: the back-th id before the last one
        if not len(word):
            break
        asks = back <= length[word]
        own = words[np.where(asks, cu[word + 1] - 1 - back, 0)]
        alike = ~asks | (context[place[word], longest + j - back] == own)
        word, j, row = word[alike], j[alike], row[alike]
    order = np.argsort(row, kind="stable")
    return row[order], word[order]


def _contexts(batch: Batch, sources: EditSources, used: Ints, longest: int) -> NDArray[np.int64]:
    """[len(used), longest + most drafts]: the ends of the histories of some requests, then their draft tokens."""
    lengths, cu_drafts = batch.draft_lengths.numpy()[used].astype(np.int64), batch.cu_drafts.numpy()[used]
    context = np.full((len(used), longest + int(lengths.max())), _NO_ID)
    line, place = spread(cu_drafts.astype(np.int64), lengths)
    context[line, longest + place - cu_drafts[line]] = batch.draft_token_ids.numpy()[place]
    taken = _put_before(context, np.full(len(used), longest), sources.output, used)
    _put_before(context, taken, sources.prompt, used)
    return context


def _put_before(context: NDArray[np.int64], end: Ints, history: Segments, used: Ints) -> Ints:
    """Writes the ends of histories so that each ends at its column; returns the columns in which they begin."""
    cu = history.cu.numpy()
    stop = cu[used + 1]
    count = np.minimum(stop - cu[used], end)
    line, place = spread(stop - count, count)
    context[line, place - stop[line] + end[line]] = history.values.numpy()[place]
    begin: Ints = end - count
    return begin
