"""How an element of a row is read: the one place where logits become numbers, shared by every plain reference.

Whoever needs an element loads it again from the row, as float32 whatever the row's dtype: a span of columns
(:func:`load`), groups of them (:func:`load_groups`) or single ones (:func:`load_at`). Columns past a row's end read as
-inf: no mass. A table that processes its rows does so here (``views``), so that nobody else needs to know of it.

Spans are torch tensors. Columns of a few numbers a request (row numbers, maxima, sums) are numpy arrays over the same
memory, because on a CPU a torch operation on a handful of numbers costs more than a pass over a tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.layout import GROUP
from sampler_kernels.rows import RowTable
from sampler_kernels.views import process_elements, process_spans

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

CHUNK_ELEMENTS = 1 << 17
"""Elements worked on at once. A row of a large vocabulary fills it alone; rows of a small one share it. Half a MiB of
float32, so that the passes over a chunk stay in the cache. Never changes a result: no number of a row depends on it."""

_WHOLE_VECTORS = 64
"""A multiple of what torch's vectorised loops take at a time."""

_NOTHING = float("-inf")
_FLOAT32 = torch.finfo(torch.float32)
_SMALLEST = 2.0**-149
"""The smallest float32 above zero."""


def inverse_temperature(temperature: Floats) -> NDArray[np.float32]:
    """1 / (T ln 2): what :func:`mass_` multiplies by.

    Kept above zero, since -inf times 0 would be NaN: by the smallest number that float32 has, which makes less than
    1e-6 of any finite difference. At the smallest normal one, 3e38 would still count at every temperature.
    """
    return (1 / (temperature * math.log(2))).clip(_SMALLEST, _FLOAT32.max).astype(np.float32)


def mass_(logits: Tensor, maximum: Tensor, inverse: Tensor) -> Tensor:
    """exp((x - maximum) / T) in float32, in place: the element's mass relative to the maximum.

    Args:
        logits: float32, contiguous, as :func:`load` gives it.
        maximum: As :func:`below_` takes it.
        inverse: :func:`inverse_temperature` of the row, as float32; broadcasts against ``logits``.

    Returns:
        ``logits``.
    """
    return exp2_(below_(logits, maximum).mul_(inverse))


def below_(logits: Tensor, maximum: Tensor) -> Tensor:
    """The distance x - maximum below the maximum, float32, in place.

    Args:
        logits: float32.
        maximum: float32, broadcasts against ``logits``. Where it is -inf nothing has mass; the smallest finite number
            stands in for it, so that -inf stays -inf instead of becoming NaN.
    """
    return logits.sub_(maximum.clamp(min=_FLOAT32.min))


def exp2_(exponent: Tensor) -> Tensor:
    """2 to the power of each element, in place. It costs torch a quarter of what an exp does, and rounds as well.

    The result for a number must not depend on the numbers around it, but torch's vectorised exp2 and the scalar one
    that it leaves the end of an array to differ in the last bit: so the end is filled up to whole vectors. (With
    several threads each would have an end of its own; see :func:`~sampler_kernels.threads.one_thread`.)

    Args:
        exponent: float32, contiguous.
    """
    flat, rest = exponent.view(-1), exponent.numel() % _WHOLE_VECTORS
    flat[: flat.numel() - rest].exp2_()
    if rest:
        end = torch.zeros(_WHOLE_VECTORS)
        end[:rest] = flat[-rest:]
        flat[-rest:] = end.exp2_()[:rest]
    return exponent


def load(rows: RowTable, which: Ints, start: int, stop: int, *, out: Tensor | None = None) -> Tensor:
    """Columns ``start:stop`` of some rows.

    Args:
        rows: The table.
        which: [n] row numbers.
        start: First column.
        stop: One past the last column; may lie past a row's end.
        out: [n, stop - start] float32 to write into; made if absent.

    Returns:
        [n, stop - start] float32, contiguous if made here; -inf past a row's end.
    """
    if out is None:
        out = torch.empty((len(which), stop - start))
    for block, at, index in _by_block(rows, which):
        width = max(0, min(stop, block.shape[1]) - start)
        source = block.narrow(1, min(start, block.shape[1]), width)
        if isinstance(at, slice):
            # A single row is converted straight from the client's memory.
            taken = (
                source.narrow(0, int(index[0]), 1)
                if len(index) == 1
                else source.index_select(0, torch.from_numpy(index))
            )
            out.narrow(1, 0, width).copy_(taken)
        elif width:
            out[at, :width] = source.index_select(0, torch.from_numpy(index)).float()
        if width < stop - start:
            out[at, width:] = _NOTHING
    if rows.processing is not None and len(which):
        process_spans(rows.processing, which, np.full(len(which), start), out)
    return out


def load_at(rows: RowTable, which: Ints, columns: Ints) -> Tensor:
    """Single elements of some rows.

    Args:
        rows: The table.
        which: [n] row numbers.
        columns: [n] or [n, c]; a negative one, or one past the row's end, reads as -inf.

    Returns:
        float32, shape of ``columns``.
    """
    out = _raw_at(rows, which, columns)
    if rows.processing is not None and len(which):
        process_elements(rows.processing, which, columns, out)
    return out


def load_groups(rows: RowTable, which: Ints, group: Ints) -> Tensor:
    """Whole groups of some rows.

    Args:
        rows: The table.
        which: [m] row numbers.
        group: [m] or [m, g] groups of each row, whose ids are :func:`members`.

    Returns:
        float32, shape of ``group`` and min(GROUP, widest row) more columns; -inf past a row's end.
    """
    row, flat = (which, group) if group.ndim == 1 else (which.repeat(group.shape[1]), group.reshape(-1))
    out = torch.empty((len(row), min(GROUP, rows.max_width)))
    for block, at, index in _by_block(rows, row):
        here = flat[at]
        full = block.shape[1] // GROUP
        if full:
            # Whole groups are copied as wholes: ten times as fast as element by element.
            groups = block[:, : full * GROUP].view(-1, full, GROUP)
            out[at] = groups[torch.from_numpy(index), torch.from_numpy(np.minimum(here, full - 1))].float()
        short = (here >= full).nonzero()[0]
        if len(short):
            place = short if isinstance(at, slice) else at[short]
            out[place] = _raw_at(rows, row[place], members(flat[place], rows.max_width))
    if rows.processing is not None and len(row):
        process_spans(rows.processing, row, flat * GROUP, out)
    return out.view(*group.shape, out.shape[1])


def members(group: Ints, width: int) -> Ints:
    """Ids of each group of a row, along a new last dimension; those past the row's end read as -inf."""
    return group[..., None] * GROUP + np.arange(min(GROUP, width))


def _raw_at(rows: RowTable, which: Ints, columns: Ints) -> Tensor:
    """:func:`load_at` of the rows as the client gave them."""
    out = None
    for block, at, index in _by_block(rows, which):
        wanted, width = columns[at], block.shape[1]
        row = torch.from_numpy(index if wanted.ndim == 1 else index[:, None])
        outside = wanted.view(np.uint64) >= np.uint64(width)  # negative ones too, which are huge as unsigned
        any_outside = bool(outside.any())
        taken = block[row, torch.from_numpy(wanted.clip(0, width - 1) if any_outside else wanted)].float()
        if any_outside:
            taken.masked_fill_(torch.from_numpy(outside), _NOTHING)
        if isinstance(at, slice):
            return taken
        out = torch.empty(columns.shape) if out is None else out
        out[at] = taken
    return torch.empty(columns.shape) if out is None else out


def order_key(values: Tensor, ids: Tensor) -> Tensor:
    """An int64 that orders elements as the contract does: value descending, then id ascending, is key descending.

    Distinct ids have distinct keys, so that any top-k of keys is exact at ties.

    Args:
        values: float32 without NaN.
        ids: int64, 0 .. 2^31 - 1, broadcasts against ``values``.
    """
    bits = (values + 0.0).view(torch.int32)  # + 0.0: the two zeros are equal values and need equal bits
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # negative floats descend as integers: turn them round
    return (ascending.long() << 32) | (0x7FFFFFFF - ids)


def id_of_key(key: Tensor) -> Tensor:
    """The id that went into :func:`order_key`, int64."""
    return 0x7FFFFFFF - (key & 0xFFFFFFFF)


def rows_at_once(width: int) -> int:
    """How many rows of ``width`` columns are worked on together, at least one."""
    return max(1, CHUNK_ELEMENTS // max(1, width))


def chunks(which: Ints, width: int) -> Iterator[Ints]:
    """Cuts a list of rows of ``width`` columns into runs that are worked on together; none for an empty list."""
    step = rows_at_once(width)
    for start in range(0, len(which), step):
        yield which[start : start + step]


def _by_block(rows: RowTable, which: Ints) -> Iterator[tuple[Tensor, slice | Ints, Ints]]:
    """(block, places in ``which``, rows within the block) for each block that ``which`` touches."""
    if len(rows.blocks) == 1 or len(which) == 1:
        if len(which):
            yield rows.blocks[rows.block[which[0]]], slice(None), rows.index[which]
        return
    block = rows.block[which]
    for b in np.unique(block):
        at = (block == b).nonzero()[0]
        yield rows.blocks[b], at, rows.index[which[at]]
