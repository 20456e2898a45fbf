"""How a kernel sees a row as it is processed: masks, edits and the cut, applied to elements that were just loaded.

A row's view is three addresses in device memory: of its mask, of the edited ids of its request, of the values that it
has there. 0 is none. Whether any row of a step has one is known when a kernel is compiled, so that a step without
processing runs the code that it would if there were no processing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from sampler_kernels.device.elements import pointer_to, tile_columns
from sampler_kernels.rows import RowTable

MASKS = 1
EDITS = 2
CUT = 4
"""Bits of ``VIEW``: what some row of the table has."""

VIEW_FIELDS = 3
"""int64 addresses a row: of its mask words, of its request's edit words, of its edit values."""

_FIELDS = tl.constexpr(VIEW_FIELDS)
_MASKS = tl.constexpr(MASKS)
_EDITS = tl.constexpr(EDITS)
_CUT = tl.constexpr(CUT)
_WORD_SHIFT = tl.constexpr(5)
_WORD_BITS = tl.constexpr(32)


@triton.jit
def popcount(bits):
    """How many of the lower 31 bits of an int32 are set; bit 31 must not be."""
    bits = bits - ((bits >> 1) & 0x55555555)
    bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F
    bits = bits + (bits >> 8)
    return (bits + (bits >> 16)) & 0x3F


@triton.jit
def masked(x, columns, inside, words):
    """Adds 0 where a mask allows an id and -inf where it does not, so that NaN and +inf stay bad.

    Args:
        x: float32.
        columns: int32, shape of ``x``.
        inside: bool, where columns lie within a row that has a mask; elsewhere nothing changes.
        words: int64, address of the packed bits; one for all, or one each.
    """
    pointers = pointer_to(words, tl.int32) + (columns >> _WORD_SHIFT)
    word = tl.load(pointers, mask=inside, other=-1)
    allowed = (word >> (columns & (_WORD_BITS - 1))) & 1
    return tl.where(allowed != 0, x, x + -float("inf"))


@triton.jit
def edited(x, columns, inside, words, values):
    """Puts edited elements in place.

    A word is an int64: the bits of 32 ids in its lower half, above it how many edited ids come before them.

    Args:
        x: float32.
        columns: int32, shape of ``x``.
        inside: bool, where columns lie within a row that has edits; elsewhere nothing changes.
        words: int64, address of the words of the row's request; one for all, or one each.
        values: int64, address of the row's float32 values, likewise.
    """
    pair = tl.load(pointer_to(words, tl.int64) + (columns >> _WORD_SHIFT), mask=inside, other=0)
    bit = columns & (_WORD_BITS - 1)
    bits = (pair & 0xFFFFFFFF).to(tl.int32)
    hit = ((bits >> bit) & 1) != 0
    place = (pair >> 32).to(tl.int32) + popcount(bits & ((1 << bit) - 1))
    return tl.where(hit, tl.load(pointer_to(values, tl.float32) + place, mask=hit, other=0.0), x)


@triton.jit
def behind_cut(x, columns, value, last):
    """Drops what lies behind a cut: below its value, or equal to it with a higher id."""
    return tl.where((x < value) | ((x == value) & (columns > last)), -float("inf"), x)


@triton.jit
def process(x, columns, inside, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW: tl.constexpr):
    """Elements of one row, as processed.

    Args:
        x: float32, of any shape, -inf past the row's end.
        columns: int32, their ids.
        inside: bool, where these lie within the row.
        row: int32, one row.
        view_ptr: [R, 3] int64.
        cut_value_ptr: [R] float32, -inf where nothing is cut.
        cut_id_ptr: [R] int32.
        VIEW: Which of the three there are.
    """
    if _MASKS & VIEW:
        words = tl.load(view_ptr + row * _FIELDS)
        if words != 0:
            x = masked(x, columns, inside, words)
    if _EDITS & VIEW:
        words = tl.load(view_ptr + row * _FIELDS + 1)
        if words != 0:
            x = edited(x, columns, inside, words, tl.load(view_ptr + row * _FIELDS + 2))
    if _CUT & VIEW:
        value = tl.load(cut_value_ptr + row)
        if value > -float("inf"):
            x = behind_cut(x, columns, value, tl.load(cut_id_ptr + row))
    return x


@triton.jit
def process_tile(x, width, tile, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW: tl.constexpr):
    """:func:`process` of a whole tile, [GROUPS, GROUP]."""
    if VIEW != 0:
        columns = tile_columns(tile)
        x = process(x, columns, columns < width, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW)
    return x


@triton.jit
def process_each(x, columns, inside, row, view_ptr, cut_value_ptr, cut_id_ptr, VIEW: tl.constexpr):
    """One element of each of several rows, as processed; shapes of all but the pointers as of ``x``."""
    if _MASKS & VIEW:
        words = tl.load(view_ptr + row * _FIELDS, mask=inside, other=0)
        x = masked(x, columns, inside & (words != 0), words)
    if _EDITS & VIEW:
        words = tl.load(view_ptr + row * _FIELDS + 1, mask=inside, other=0)
        values = tl.load(view_ptr + row * _FIELDS + 2, mask=inside, other=0)
        x = edited(x, columns, inside & (words != 0), words, values)
    if _CUT & VIEW:
        value = tl.load(cut_value_ptr + row, mask=inside, other=-float("inf"))
        x = behind_cut(x, columns, value, tl.load(cut_id_ptr + row, mask=inside, other=0))
    return x


@dataclass(frozen=True, eq=False)
class View:
    """What kernels are told of a table's processing.

    Attributes:
        table: [R, 3] int64 addresses; nothing where no row has a mask or edits.
        cut_value: [R] float32; nothing where no row is cut.
        cut_id: [R] int32, likewise.
        flags: ``VIEW``.
    """

    table: Tensor
    cut_value: Tensor
    cut_id: Tensor
    flags: int

    @property
    def arguments(self) -> tuple[Tensor, Tensor, Tensor]:
        """In the order in which kernels take them."""
        return self.table, self.cut_value, self.cut_id


def view_of(rows: RowTable, device: torch.device) -> View:
    """The view of a table, which ``processors`` has laid out if it has masks or edits.

    Args:
        rows: R rows.
        device: Where they lie.
    """
    processing = rows.processing
    table, value, last = (torch.empty(0, dtype=d, device=device) for d in (torch.int64, torch.float32, torch.int32))
    flags = 0
    if processing is None:
        return View(table, value, last, flags)
    if processing.masks is not None or processing.edits is not None:
        assert rows.uploaded is not None, "masked or edited rows have not been through processors"
        assert rows.uploaded.view is not None, "masked or edited rows have not been through processors"
        table = rows.uploaded.view
        flags = (MASKS if processing.masks is not None else 0) | (EDITS if processing.edits is not None else 0)
    if processing.filters is not None:
        value, last, flags = processing.filters.cut_value, processing.filters.cut_id, flags | CUT
    return View(table, value, last, flags)
