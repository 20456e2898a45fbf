"""Processing applied to elements that were just loaded: masks, then edits, then the cut. Shared by every reference.

A mask is added, as 0 or -inf, and never replaces: NaN stays NaN, and +inf becomes NaN, so that a bad element of the
client's row is seen in the processed row too, whether or not it is allowed.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.processing import Processing, RowEdits, RowFilters, RowMasks
from sampler_kernels.segments import spread

Ints = NDArray[np.int64]
Logits = NDArray[np.float32]

_MINUS_INF_BITS = np.float32(-math.inf).view(np.int32)
_WORD = 32


def process_spans(processing: Processing, which: Ints, start: Ints, logits: Tensor) -> None:
    """Turns spans of raw rows into spans of processed ones, in place.

    Args:
        processing: Of the table.
        which: [m] row numbers.
        start: [m] first column of each span, a multiple of 32.
        logits: [m, w] float32.
    """
    x: Logits = logits.numpy()
    if processing.masks is not None:
        with np.errstate(invalid="ignore"):  # +inf, masked
            _mask_spans(processing.masks, which, start, x)
    if processing.edits is not None:
        _edit_spans(processing.edits.of(torch.from_numpy(which)), which, start, x)
    if processing.filters is not None:
        _cut_spans(processing.filters, which, start, x)


def process_elements(processing: Processing, which: Ints, columns: Ints, logits: Tensor) -> None:
    """Turns single elements of raw rows into elements of processed ones, in place.

    Args:
        processing: Of the table.
        which: [n] row numbers.
        columns: [n] or [n, c]; those outside the row are of -inf already.
        logits: float32, shape of ``columns``.
    """
    x: Logits = logits.numpy()
    row = np.broadcast_to(which.reshape(-1, *[1] * (columns.ndim - 1)), columns.shape)
    if processing.masks is not None:
        with np.errstate(invalid="ignore"):
            _mask_elements(processing.masks, row, columns, x)
    if processing.edits is not None:
        _edit_elements(processing.edits.of(torch.from_numpy(which)), row, columns, x)
    if processing.filters is not None:
        value, last = processing.filters.cut_value.numpy()[row], processing.filters.cut_id.numpy()[row]
        x[(x < value) | ((x == value) & (columns > last))] = -math.inf


def prepare(processing: Processing | None, which: Ints) -> None:
    """Computes what is needed to process some rows all at once, which is cheaper than row by row as they are loaded."""
    if processing is not None and processing.edits is not None:
        processing.edits.of(torch.from_numpy(which))


def edited(processing: Processing | None, count: int) -> NDArray[np.bool_]:
    """[count], rows of a table whose elements masks or edits may change."""
    out = np.zeros(count, np.bool_)
    if processing is not None and processing.masks is not None:
        out |= processing.masks.row.numpy() >= 0
    if processing is not None and processing.edits is not None:
        out |= np.diff(processing.edits.of(torch.empty(0, dtype=torch.int64)).first.numpy()) > 0
    return out


def _mask_spans(masks: RowMasks, which: Ints, start: Ints, x: Logits) -> None:
    line, words = masks.row.numpy()[which], masks.words.numpy()
    masked = (line >= 0).nonzero()[0]
    if not len(masked):
        return
    first, count = start[masked] // _WORD, -(-x.shape[1] // _WORD)
    if (first == first[0]).all():
        span = words[line[masked], first[0] : first[0] + count]
    else:
        column = first[:, None] + np.arange(count)
        span = words[line[masked, None], column.clip(max=words.shape[1] - 1)]
    addend = _minus_inf_unless(np.unpackbits(span.view(np.uint8), axis=1, bitorder="little"))[:, : x.shape[1]]
    # Past the last word lies nothing but -inf.
    if len(masked) == len(x):
        x[:, : addend.shape[1]] += addend
    else:
        x[masked, : addend.shape[1]] += addend


def _mask_elements(masks: RowMasks, row: Ints, columns: Ints, x: Logits) -> None:
    line, words = masks.row.numpy()[row], masks.words.numpy()
    column = columns.clip(0, words.shape[1] * _WORD - 1)
    allowed = (words[line, column // _WORD] >> (column % _WORD).astype(np.int32)) & 1
    x += _minus_inf_unless(np.where(line < 0, 1, allowed).astype(np.uint8))


def _minus_inf_unless(allowed: NDArray[np.uint8]) -> Logits:
    """0 where ``allowed`` is 1, -inf where it is 0: all bits or none of them, cut down to those of -inf."""
    bits = (allowed - np.uint8(1)).view(np.int8).astype(np.int32)
    bits &= _MINUS_INF_BITS
    return bits.view(np.float32)


def _edit_spans(edits: RowEdits, which: Ints, start: Ints, x: Logits) -> None:
    begin = edits.request.numpy()[which] * edits.vocab_size
    low = np.searchsorted(edits.keys.numpy(), begin + start)
    high = np.searchsorted(edits.keys.numpy(), begin + np.minimum(start + x.shape[1], edits.vocab_size))
    line, entry = spread(low, high - low)
    if len(line):
        x[line, edits.ids.numpy()[entry] - start[line]] = _values(edits, which[line], entry)


def _edit_elements(edits: RowEdits, row: Ints, columns: Ints, x: Logits) -> None:
    keys = edits.keys.numpy()
    wanted = edits.request.numpy()[row] * edits.vocab_size + columns
    entry = np.searchsorted(keys, wanted)
    inside = (columns >= 0) & (columns < edits.vocab_size) & (entry < len(keys))
    inside[inside] = keys[entry[inside]] == wanted[inside]
    x[inside] = _values(edits, row[inside], entry[inside])


def _values(edits: RowEdits, row: Ints, entry: Ints) -> Logits:
    """Processed values of entries, in the rows that each is asked of."""
    values: Logits = edits.values.numpy()
    place: Ints = edits.first.numpy()[row] + entry - edits.cu.numpy()[edits.request.numpy()[row]]
    return values[place]


def _cut_spans(filters: RowFilters, which: Ints, start: Ints, x: Logits) -> None:
    value, last = filters.cut_value.numpy()[which], filters.cut_id.numpy()[which]
    if len(x) == 1:
        if value[0] > -math.inf:
            # One threshold on either side of the last id kept; torch's has no branches, unlike a masked write.
            middle = int(np.clip(int(last[0]) + 1 - int(start[0]), 0, x.shape[1]))
            below = float(np.nextafter(value[0], np.float32(-math.inf)))
            row = torch.from_numpy(x[0])
            torch.threshold_(row[:middle], below, -math.inf)
            torch.threshold_(row[middle:], float(value[0]), -math.inf)
        return
    cut = (value > -math.inf).nonzero()[0]
    if len(cut):
        part, edge = x[cut], value[cut, None]
        before_last = np.arange(x.shape[1]) + start[cut, None] <= last[cut, None]
        kept = (part > edge) | ((part == edge) & before_last)
        x[cut] = part + _minus_inf_unless(kept.view(np.uint8))
