"""How an element of a row is read: the one place where logits become numbers, shared by every plain reference.

Whoever needs an element loads it again from the row, as float32 whatever the row's dtype, and scales it with
:func:`element_`. A load takes a span of columns (:func:`load`) or single ones (:func:`load_at`). Columns past a
row's end read as -inf: no mass.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from sampler_kernels.rows import RowTable
from torch import Tensor

CHUNK_ELEMENTS = 1 << 17
"""Elements worked on at once. A row of a large vocabulary fills it alone; rows of a small one share it. Half a MiB of
float32, so that the passes over a chunk stay in the cache. Never changes a result: no number of a row depends on it."""

_MASS_FREE = float("-inf")
_FLOAT32 = torch.finfo(torch.float32)


def element_(logits: Tensor, maximum: Tensor, divisor: Tensor) -> Tensor:
    """``(x - maximum) / temperature`` in float32, in place. Its exp is the element's mass relative to the maximum.

    Args:
        logits: float32, as :func:`load` gives it.
        maximum: float32, broadcasts against ``logits``. Where it is -inf nothing has mass; the smallest finite number
            stands in for it, so that -inf stays -inf instead of becoming NaN.
        divisor: float32, broadcasts likewise: :func:`divisor` of the row's temperature.

    Returns:
        ``logits``.
    """
    return logits.sub_(maximum.clamp(min=_FLOAT32.min)).div_(divisor)


def divisor(temperature: Tensor) -> Tensor:
    """What elements are divided by, float32: a temperature beyond its range is its largest finite number, since
    -inf / inf would be NaN."""
    return effective(temperature).clamp(max=_FLOAT32.max).float()


def effective(temperature: Tensor) -> Tensor:
    """0, which asks for the argmax, still has a distribution to report: that at temperature 1."""
    return torch.where(temperature == 0, 1.0, temperature)


def load(rows: RowTable, which: Tensor, start: int, stop: int, *, out: Tensor | None = None) -> Tensor:
    """Columns ``start:stop`` of some rows.

    Args:
        rows: The table.
        which: [n] int64 row numbers.
        start: First column.
        stop: One past the last column; may lie past a row's end.
        out: [n, stop - start] float32 to write into; made if absent.

    Returns:
        [n, stop - start] float32, contiguous if made here; -inf past a row's end.
    """
    if out is None:
        out = torch.empty((len(which), stop - start), dtype=torch.float32)
    for block, at, index in _by_block(rows, which):
        width = max(0, min(stop, block.shape[1]) - start)
        if width:
            source = block[:, start : start + width]
            # One row, the large-vocabulary case, is converted straight from the client's memory.
            taken = source[int(index)].unsqueeze(0) if len(index) == 1 else source.index_select(0, index)
            out[at, :width] = taken.float() if isinstance(at, Tensor) else taken
        out[at, width:] = _MASS_FREE
    return out


def load_at(rows: RowTable, which: Tensor, columns: Tensor) -> Tensor:
    """Single elements of some rows.

    Args:
        rows: The table.
        which: [n] int64 row numbers.
        columns: [n] or [n, c] int64 columns; a negative one, or one past the row's end, reads as -inf.

    Returns:
        float32, shape of ``columns``.
    """
    out = torch.full(columns.shape, _MASS_FREE, dtype=torch.float32)
    for block, at, index in _by_block(rows, which):
        wanted = columns[at]
        known = (wanted >= 0) & (wanted < block.shape[1])
        row = index if wanted.ndim == 1 else index[:, None]
        taken = block[row, wanted.clamp(0, block.shape[1] - 1)].float()
        out[at] = torch.where(known, taken, _MASS_FREE)
    return out


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


def chunks(which: Tensor, width: int) -> tuple[Tensor, ...]:
    """Cuts a list of rows of ``width`` columns into runs that are worked on together; none for an empty list."""
    return which.split(rows_at_once(width)) if len(which) else ()


def _by_block(rows: RowTable, which: Tensor) -> Iterator[tuple[Tensor, Tensor | slice, Tensor]]:
    """(block, places in ``which``, rows within the block) for each block that ``which`` touches."""
    index = torch.from_numpy(rows.index)[which]
    if len(rows.blocks) == 1:
        if len(which):
            yield rows.blocks[0], slice(None), index
        return
    block = torch.from_numpy(rows.block)[which]
    for b in block.unique().tolist():
        at = (block == b).nonzero().squeeze(1)
        yield rows.blocks[b], at, index[at]
