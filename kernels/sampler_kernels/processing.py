"""What stands between a client's row and the processed one: masks, edits and a cut, applied as elements are loaded.

No processed row is ever stored. A row's mask is one bit an id; its edits are the few ids that anything sparse touches
(histories, biases, stop ids, bad words), each with its processed value; and every filter keeps a head of the order
(value descending, id ascending), so that any stack of filters comes to one cut in that order.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Segments:
    """Lists of numbers, one for each of n owners, end to end on the device.

    Attributes:
        values: [cu[n]] of any dtype.
        cu: [n+1] int64 prefix sum of the lengths.
    """

    values: Tensor
    cu: Tensor


@dataclass(frozen=True, eq=False)
class RowMasks:
    """Which ids each row allows, as packed bits.

    Attributes:
        words: [M, ceil(V / 32)] int32, last stride 1, row stride free; bit i % 32 of word i / 32 allows id i.
        row: [R] int32, the line of ``words`` that masks each row, -1 for none.
    """

    words: Tensor
    row: Tensor


class Occurrence(enum.IntEnum):
    """What a request brings an id as, in the order in which a device is given them."""

    PROMPT = 0
    OUTPUT = 1
    COUNTED = 2
    """Of the output history too, given once with its count."""
    BIAS = 3
    STOP = 4
    WORD = 5
    """The last id of a bad word."""
    DRAFT = 6


@dataclass(frozen=True, eq=False)
class EditRoom:
    """How much room the edits of a batch take at most: known beforehand, so that no device is asked how many they are.

    An entry is an id of a request that may be edited. On the device but for the plain integers.

    Attributes:
        occurrence_cu: [7 * B + 1] int64 prefix sum of the numbers of ids, by :class:`Occurrence`, then by request.
        last_ids: [words] int64, the last id of each bad word, by request.
        entry_cu: [B+1] int64, where the entries of each request begin.
        value_first: [N+1] int64, where the values of each row begin.
        row_request: [N] int32, whose row it is.
        num_entries: Entries of all requests.
        most_entries: Of one request.
        num_values: Values of all rows.
    """

    occurrence_cu: Tensor
    last_ids: Tensor
    entry_cu: Tensor
    value_first: Tensor
    row_request: Tensor
    num_entries: int
    most_entries: int
    num_values: int


@dataclass(frozen=True, eq=False)
class EditSources:
    """Everything sparse that the requests of a batch bring, as they brought it. On the device.

    Attributes:
        prompt: Prompt ids of each request, anything; those outside [0, V) touch no element.
        output: Output ids likewise.
        counted: Distinct output ids of requests that give them with their counts.
        counts: [len(counted.values)] int64, how often each of them occurred.
        bias: Ids with a bias, of each request.
        bias_values: [len(bias.values)] float32.
        stops: Stop ids, of each request that has a minimum number of tokens.
        masked_rows: [B] int64: stop ids are masked on rows 0 .. masked_rows - 1.
        words: Bad words, one list a word.
        word_request: [words] int64, ascending: whose word it is.
        repetition: [B] float32.
        frequency: [B] float32.
        presence: [B] float32.
        room: For what is made of all this.
    """

    prompt: Segments
    output: Segments
    counted: Segments
    counts: Tensor
    bias: Segments
    bias_values: Tensor
    stops: Segments
    masked_rows: Tensor
    words: Segments
    word_request: Tensor
    repetition: Tensor
    frequency: Tensor
    presence: Tensor
    room: EditRoom


@dataclass(frozen=True, eq=False)
class RowEdits:
    """The elements of R rows that are replaced: one list of ids a request, one list of values a row.

    Rows of a request share its ids, so that a kernel finds an element's edit once for all rows of a request: a bitmap
    of edited ids with a prefix count of its bits leads from an id to its place in the list.

    Attributes:
        request: [R] int64, whose row it is.
        ids: [E] int64, within each request ascending and distinct.
        keys: [E] int64, request * V + id: one list that ascends over all requests.
        vocab_size: V.
        cu: [B+1] int64 prefix sum of the numbers of ids.
        first: [R+1] int64: the values of a row are ``values[first[row] : first[row + 1]]``, in the order of the ids.
        values: [first[R]] float32, processed values; NaN or +inf where the client's element was.
    """

    request: Tensor
    ids: Tensor
    keys: Tensor
    vocab_size: int
    cu: Tensor
    first: Tensor
    values: Tensor


class Edits(Protocol):
    """Edits that may be computed when rows are first read."""

    def of(self, which: Tensor) -> RowEdits:
        """The edits of all rows, with the values of the rows ``which`` ([n] int64) filled in."""
        ...


@dataclass(frozen=True, eq=False)
class RowFilters:
    """What each row keeps, as asked for and as it came out. All [R]; an unfiltered row keeps everything.

    Attributes:
        log_min_p: float64, ln of min-p, -inf where off.
        top_k: int64, 0 where off.
        top_p: float64, 1 where off.
        cut_value: float32, the last value kept; +inf until it is known, -inf where nothing is filtered.
        cut_id: int32, the last id kept among elements of that value.
    """

    log_min_p: Tensor
    top_k: Tensor
    top_p: Tensor
    cut_value: Tensor
    cut_id: Tensor

    @property
    def active(self) -> Tensor:
        """[R] bool, rows with a filter."""
        return (self.log_min_p > -torch.inf) | (self.top_k > 0) | (self.top_p < 1)


@dataclass(frozen=True, eq=False)
class Processing:
    """How the elements of a table's rows are changed as they are loaded; None is a step that changes nothing.

    Attributes:
        masks: Added first: 0 where an id is allowed, -inf where it is not.
        edits: Then put in place of single elements.
        filters: Last, everything behind the cut becomes -inf.
    """

    masks: RowMasks | None = None
    edits: Edits | None = None
    filters: RowFilters | None = None

    @property
    def unfiltered(self) -> Processing | None:
        """The same without its cut; None if nothing is left."""
        return replace(self, filters=None) if self.masks is not None or self.edits is not None else None
