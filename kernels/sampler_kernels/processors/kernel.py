"""Edits on a device: a bitmap of edited ids for each request, and for each row one value an edited id.

Nothing is sorted and nothing is counted on the host. How many occurrences of ids a request brings is known when the
step is planned, and bounds its entries; how many distinct ones there are shows only in the bitmap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.device.compile import TRITON_DTYPES, kernel, placeholder
from sampler_kernels.device.elements import load_at
from sampler_kernels.device.view import MASKS, VIEW_FIELDS, popcount, process
from sampler_kernels.layout import MAX_DRAFT_TOKENS
from sampler_kernels.processing import EditRoom, EditSources, Occurrence, Processing, RowEdits
from sampler_kernels.rows import RowPointers, RowTable

_BLOCK = 512
"""Occurrences a program: each is a handful of dependent loads, so four warps of four each keep many in flight."""
_WORDS = 1024
"""Words of a bitmap whose prefix is taken at once: four rounds for a vocabulary of 128,256."""
_ENTRIES = 256
"""Entries of a row a program."""

_ROWS = tl.constexpr(2 * MAX_DRAFT_TOKENS)
"""The power of two that holds the 129 rows of the longest request."""
_FIELDS = tl.constexpr(VIEW_FIELDS)
_PROMPT = tl.constexpr(int(Occurrence.PROMPT))
_OUTPUT = tl.constexpr(int(Occurrence.OUTPUT))
_COUNTED = tl.constexpr(int(Occurrence.COUNTED))
_BIAS = tl.constexpr(int(Occurrence.BIAS))
_STOP = tl.constexpr(int(Occurrence.STOP))
_WORD = tl.constexpr(int(Occurrence.WORD))
_SEEN_FLAG = tl.constexpr(1)
_STOP_FLAG = tl.constexpr(2)


@triton.jit
def _owner(position, cu_ptr, count, steps):
    """Which of ``count`` segments each position lies in: the last that starts at or before it. int32.

    cu_ptr: [count + 1] int64. steps: at least log2 of ``count``, rounded up, and one more.
    """
    low = position * 0
    high = low + count
    for _ in range(steps):
        middle = (low + high) >> 1
        starts_before = tl.load(cu_ptr + middle) <= position
        low = tl.where(starts_before, middle, low)
        high = tl.where(starts_before, high, middle)
    return low


@triton.jit
def _penalised(request, wanted, repetition_ptr, frequency_ptr, presence_ptr):
    """Whether the requests have a penalty; bool."""
    repetition = tl.load(repetition_ptr + request, mask=wanted, other=1.0)
    frequency = tl.load(frequency_ptr + request, mask=wanted, other=0.0)
    presence = tl.load(presence_ptr + request, mask=wanted, other=0.0)
    return (repetition != 1.0) | (frequency != 0.0) | (presence != 0.0)


@triton.jit
def _occurrence(
    first,
    ids_ptr,
    cu_ptr,
    repetition_ptr,
    frequency_ptr,
    presence_ptr,
    total,
    segments,
    steps,
    requests,
    vocab_size,
    BLOCK: tl.constexpr,
):
    """BLOCK occurrences from ``first`` on.

    Returns:
        id, request, kind, place in its list, all int32 [BLOCK]; bool, whether it makes an entry: its id is in the
        vocabulary, and what only penalties ask for is of a request with one.
    """
    position = first + tl.arange(0, BLOCK)
    inside = position < total
    token = tl.load(ids_ptr + position, mask=inside, other=-1)
    segment = _owner(tl.where(inside, position, 0), cu_ptr, segments, steps)
    kind = segment // requests
    request = segment % requests
    counts = inside & (token >= 0) & (token < vocab_size)
    always = (kind == _BIAS) | (kind == _STOP) | (kind == _WORD)
    counts = counts & (always | _penalised(request, counts, repetition_ptr, frequency_ptr, presence_ptr))
    place = position - tl.load(cu_ptr + kind * requests, mask=inside, other=0).to(tl.int32)
    return token.to(tl.int32), request, kind, place, counts


@kernel
def _mark_kernel(
    ids_ptr,
    cu_ptr,
    repetition_ptr,
    frequency_ptr,
    presence_ptr,
    words_ptr,
    total,
    segments,
    steps,
    requests,
    vocab_size,
    words,
    BLOCK: tl.constexpr,
):
    """Sets the bit of each id that is edited.

    ids_ptr: [total] int64, occurrences. cu_ptr: [segments + 1] int64, where those of each kind and request begin.
    repetition_ptr, frequency_ptr, presence_ptr: [requests] float32. words_ptr: [requests, words, 2] int32, zero before;
    the first of each pair is or-ed to. The grid walks blocks of occurrences.
    """
    token, request, _, _, counts = _occurrence(
        tl.program_id(0) * BLOCK,
        ids_ptr,
        cu_ptr,
        repetition_ptr,
        frequency_ptr,
        presence_ptr,
        total,
        segments,
        steps,
        requests,
        vocab_size,
        BLOCK,
    )
    place = request.to(tl.int64) * words + (token >> 5)
    tl.atomic_or(words_ptr + place * 2, tl.full([BLOCK], 1, tl.int32) << (token & 31), mask=counts, sem="relaxed")


@kernel
def _prefix_kernel(words_ptr, num_entries_ptr, words, BLOCK: tl.constexpr):
    """Writes beside each word how many bits are set before it in its request, and how many there are.

    words_ptr: [B, words, 2] int32. num_entries_ptr: [B] int32. The grid walks requests: a prefix is one chain, and a
    round of it is BLOCK words.
    """
    request = tl.program_id(0)
    total = request * 0
    for start in range(0, words, BLOCK):
        word = start + tl.arange(0, BLOCK)
        place = request.to(tl.int64) * words + word
        bits = tl.load(words_ptr + place * 2, mask=word < words, other=0)
        count = popcount(bits & 0x7FFFFFFF) + ((bits >> 31) & 1)
        tl.store(words_ptr + place * 2 + 1, total + tl.cumsum(count, axis=0) - count, mask=word < words)
        total += tl.sum(count, axis=0)
    tl.store(num_entries_ptr + request, total)


@triton.jit
def _entry_of(token, request, wanted, words_ptr, words):
    """The number of an id among the entries of its request, int32. Its bit is set where it is ``wanted``.

    words_ptr: [B, words, 2] int32.
    """
    place = request.to(tl.int64) * words + (token >> 5)
    bits = tl.load(words_ptr + place * 2, mask=wanted, other=0)
    before = tl.load(words_ptr + place * 2 + 1, mask=wanted, other=0)
    return before + popcount(bits & ((1 << (token & 31)) - 1))


@kernel
def _fill_kernel(
    ids_ptr,
    cu_ptr,
    repetition_ptr,
    frequency_ptr,
    presence_ptr,
    words_ptr,
    bias_values_ptr,
    counts_ptr,
    entry_cu_ptr,
    entry_ids_ptr,
    entry_count_ptr,
    entry_flags_ptr,
    entry_bias_ptr,
    total,
    segments,
    steps,
    requests,
    vocab_size,
    words,
    BLOCK: tl.constexpr,
):
    """Adds up what is known of each entry.

    In: as the kernel that marks; bias_values_ptr [biases] float32; counts_ptr [counted ids] int64; entry_cu_ptr [B+1]
    int64, where the entries of each request begin. Out: entry_ids_ptr [E] int32; entry_count_ptr [E] int64,
    entry_flags_ptr [E] int32 and entry_bias_ptr [E] float32, zero before. The grid walks blocks of occurrences.
    """
    token, request, kind, place, counts = _occurrence(
        tl.program_id(0) * BLOCK,
        ids_ptr,
        cu_ptr,
        repetition_ptr,
        frequency_ptr,
        presence_ptr,
        total,
        segments,
        steps,
        requests,
        vocab_size,
        BLOCK,
    )
    entry = tl.load(entry_cu_ptr + request, mask=counts, other=0) + _entry_of(token, request, counts, words_ptr, words)
    tl.store(entry_ids_ptr + entry, token, mask=counts)
    counted = counts & (kind == _COUNTED)
    often = tl.load(counts_ptr + place, mask=counted, other=1)
    tl.atomic_add(entry_count_ptr + entry, often, mask=counted | (counts & (kind == _OUTPUT)), sem="relaxed")
    flag = tl.where(kind == _STOP, _STOP_FLAG, _SEEN_FLAG)
    tl.atomic_or(entry_flags_ptr + entry, flag, mask=counts & ((kind == _STOP) | (kind == _PROMPT)), sem="relaxed")
    biased = counts & (kind == _BIAS)
    tl.store(entry_bias_ptr + entry, tl.load(bias_values_ptr + place, mask=biased, other=0.0), mask=biased)


@kernel
def _describe_kernel(
    draft_lengths_ptr,
    cu_num_logits_ptr,
    mask_row_ptr,
    mask_words_ptr,
    num_entries_ptr,
    words_ptr,
    values_ptr,
    value_first_ptr,
    view_ptr,
    mask_stride,
    words,
    HAS_MASKS: tl.constexpr,
    HAS_EDITS: tl.constexpr,
):
    """The view of one request's rows.

    In: columns of ``Batch``; mask_row_ptr [N] int32, mask_words_ptr int32 with rows ``mask_stride`` apart;
    num_entries_ptr [B] int32; words_ptr [B, words] int64, values_ptr float32, value_first_ptr [N+1] int64.
    Out: view_ptr [N, 3] int64. The grid walks requests; a program covers the rows that the longest may have.
    """
    request = tl.program_id(0)
    j = tl.arange(0, _ROWS)
    inside = j <= tl.load(draft_lengths_ptr + request)
    row = tl.load(cu_num_logits_ptr + request) + j
    nothing = tl.zeros([_ROWS], tl.int64)
    mask = nothing
    if HAS_MASKS:
        line = tl.load(mask_row_ptr + row, mask=inside, other=-1)
        mask = tl.where(line >= 0, mask_words_ptr.to(tl.int64) + line.to(tl.int64) * mask_stride * 4, 0)
    edits = nothing
    values = nothing
    if HAS_EDITS:
        any_entry = tl.load(num_entries_ptr + request) > 0
        edits += tl.where(any_entry, words_ptr.to(tl.int64) + request.to(tl.int64) * words * 8, 0)
        values = values_ptr.to(tl.int64) + tl.load(value_first_ptr + row, mask=inside, other=0) * 4
    tl.store(view_ptr + row * _FIELDS, mask, mask=inside)
    tl.store(view_ptr + row * _FIELDS + 1, edits, mask=inside)
    tl.store(view_ptr + row * _FIELDS + 2, values, mask=inside)


@kernel
def _values_kernel(
    row_request_ptr,
    cu_num_logits_ptr,
    cu_drafts_ptr,
    draft_token_ids_ptr,
    address_ptr,
    view_ptr,
    repetition_ptr,
    frequency_ptr,
    presence_ptr,
    masked_rows_ptr,
    num_entries_ptr,
    entry_cu_ptr,
    entry_ids_ptr,
    entry_count_ptr,
    entry_flags_ptr,
    entry_bias_ptr,
    value_first_ptr,
    values_ptr,
    blocks,
    DTYPE: tl.constexpr,
    VIEW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The elements of one row at some of its entries, after mask, bias, min-tokens and penalties.

    In: row_request_ptr [N] int32; columns of ``Batch`` and ``EditSources`` by their names; the entries, [E]; their mask
    in view_ptr. Out: values_ptr float32, those of a row from value_first_ptr [N+1] int64 on.
    The grid is one axis over (row, block of entries), blocks fastest.
    """
    row = tl.program_id(0) // blocks
    request = tl.load(row_request_ptr + row)
    entry = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < tl.load(num_entries_ptr + request)
    at = tl.load(entry_cu_ptr + request) + entry
    token = tl.load(entry_ids_ptr + at, mask=inside, other=0)
    count = tl.load(entry_count_ptr + at, mask=inside, other=0)
    flags = tl.load(entry_flags_ptr + at, mask=inside, other=0)
    j = row - tl.load(cu_num_logits_ptr + request)
    repetition = tl.load(repetition_ptr + request)
    frequency = tl.load(frequency_ptr + request)
    presence = tl.load(presence_ptr + request)
    if (repetition != 1.0) | (frequency != 0.0) | (presence != 0.0):
        first_draft = tl.load(cu_drafts_ptr + request)
        for i in range(j):
            count += (tl.load(draft_token_ids_ptr + first_draft + i) == token).to(tl.int64)

    given = load_at(tl.load(address_ptr + row), token, inside, DTYPE)
    given = process(given, token, inside, row, view_ptr, view_ptr, view_ptr, VIEW)
    x = given + tl.load(entry_bias_ptr + at, mask=inside, other=0.0)
    masked = ((flags & _STOP_FLAG) != 0) & (j < tl.load(masked_rows_ptr + request))
    x = tl.where(masked, given + -float("inf"), x)
    seen = ((flags & _SEEN_FLAG) != 0) | (count > 0)
    x = tl.where(seen, tl.where(x > 0, tl.div_rn(x, x * 0.0 + repetition), x * repetition), x)
    x = tl.where(count > 0, x - (frequency * count.to(tl.float32) + presence), x)
    tl.store(values_ptr + tl.load(value_first_ptr + row) + entry, x, mask=inside)


@triton.jit
def _context(j, back, drafts_ptr, output_ptr, output_length, prompt_ptr, prompt_length):
    """The id that stands ``back`` places before the token that each row j predicts, int64; -1 where there is none."""
    place = j - back
    draft = tl.load(drafts_ptr + place, mask=place >= 0, other=-1).to(tl.int64)
    in_output = (place < 0) & (place + output_length >= 0)
    output = tl.load(output_ptr + (place + output_length), mask=in_output, other=-1).to(tl.int64)
    before = place + output_length + prompt_length
    prompt = tl.load(prompt_ptr + before, mask=(place + output_length < 0) & (before >= 0), other=-1).to(tl.int64)
    return tl.where(place >= 0, draft, tl.where(in_output, output, prompt))


@kernel
def _bad_words_kernel(
    word_request_ptr,
    cu_words_ptr,
    word_ids_ptr,
    draft_lengths_ptr,
    cu_num_logits_ptr,
    cu_drafts_ptr,
    draft_token_ids_ptr,
    cu_prompt_ptr,
    prompt_ptr,
    cu_output_ptr,
    output_ptr,
    address_ptr,
    words_ptr,
    value_first_ptr,
    values_ptr,
    words,
    DTYPE: tl.constexpr,
):
    """Masks the last id of one bad word on the rows whose context ends in the ids before it.

    In: the words of ``EditSources``; columns of ``Batch``; histories as int32 or int64 ids; words_ptr [B, words, 2]
    int32. Out: values_ptr, over what the values kernel wrote. Two words may end in one id: both write the same.
    The grid walks words; a program covers the rows that the longest request may have.
    """
    number = tl.program_id(0)
    request = tl.load(word_request_ptr + number)
    start = tl.load(cu_words_ptr + number)
    length = tl.load(cu_words_ptr + number + 1) - start
    drafts_ptr = draft_token_ids_ptr + tl.load(cu_drafts_ptr + request)
    prompt_start = tl.load(cu_prompt_ptr + request)
    prompt_length = tl.load(cu_prompt_ptr + request + 1) - prompt_start
    output_start = tl.load(cu_output_ptr + request)
    output_length = tl.load(cu_output_ptr + request + 1) - output_start

    j = tl.arange(0, _ROWS)
    matches = j <= tl.load(draft_lengths_ptr + request)
    for back in range(1, length):
        own = tl.load(word_ids_ptr + start + length - 1 - back)
        theirs = _context(
            tl.where(matches, j, 0),
            back,
            drafts_ptr,
            output_ptr + output_start,
            output_length,
            prompt_ptr + prompt_start,
            prompt_length,
        )
        matches = matches & (theirs == own)
    row = tl.load(cu_num_logits_ptr + request) + j
    token = tl.load(word_ids_ptr + start + length - 1).to(tl.int32) + j * 0
    entry = _entry_of(token, request + j * 0, matches, words_ptr, words)
    address = tl.load(address_ptr + row, mask=matches, other=0)
    given = load_at(address, token, matches, DTYPE)
    # A mask makes -inf of a good element, as the word does; a bad one stays bad without being masked first.
    tl.store(
        values_ptr + tl.load(value_first_ptr + row, mask=matches, other=0) + entry,
        given + -float("inf"),
        mask=matches,
    )


@dataclass(frozen=True, eq=False)
class KernelEdits:
    """Edits as kernels find them.

    Attributes:
        words: [B, W] int64: in the lower half of a word the bits of 32 ids, above it how many are set before it.
        values: float32, those of a row from ``value_first`` on, in the order of their ids.
        value_first: [N+1] int64.
        row_request: [N] int32.
        vocab_size: V.
    """

    words: Tensor
    values: Tensor
    value_first: Tensor
    row_request: Tensor
    vocab_size: int

    def of(self, which: Tensor) -> RowEdits:  # noqa: ARG002  (all rows are filled in)
        """The same as lists, on the host. Waits for the device: for comparisons, not for a step."""
        bits = (self.words.cpu() & 0xFFFFFFFF).numpy().astype("<u4")
        ids = [np.flatnonzero(np.unpackbits(line.view(np.uint8), bitorder="little")) for line in bits]
        request = self.row_request.cpu().long()
        length = np.array([len(each) for each in ids], np.int64)
        values, first = self.values.cpu(), self.value_first.cpu().tolist()
        of_rows = [values[first[row] : first[row] + length[r]] for row, r in enumerate(request.tolist())]
        flat = np.concatenate(ids) if ids else np.empty(0, np.int64)
        return RowEdits(
            request=request,
            ids=torch.from_numpy(flat),
            keys=torch.from_numpy(flat + np.repeat(np.arange(len(ids)) * self.vocab_size, length)),
            vocab_size=self.vocab_size,
            cu=torch.from_numpy(np.concatenate([[0], np.cumsum(length)])),
            first=torch.from_numpy(np.concatenate([[0], np.cumsum(length[request.numpy()])])),
            values=torch.cat(of_rows),
        )


def processors(batch: Batch) -> RowTable:
    """The target rows with their masks and edits laid out for kernels.

    See :func:`sampler_kernels.processors.reference.processors`.
    """
    rows, sources, device = batch.target, batch.edit_sources, batch.draft_lengths.device
    masks = None if rows.processing is None else rows.processing.masks
    if masks is None and sources is None:
        return rows
    pointers = rows.pointers(device)
    view = torch.empty((len(rows), VIEW_FIELDS), dtype=torch.int64, device=device)
    edits = None if sources is None else _Making.of(batch, sources)
    if edits is not None:
        edits.find_entries()
    _describe(batch, view, edits)
    if edits is not None:
        edits.compute(pointers, view)
    processing = replace(rows.processing or Processing(), edits=None if edits is None else edits.result)
    return replace(rows, uploaded=replace(pointers, view=view), processing=processing)


def _describe(batch: Batch, view: Tensor, edits: _Making | None) -> None:
    masks = None if batch.target.processing is None else batch.target.processing.masks
    none = placeholder(view, torch.int64)
    _describe_kernel[(len(batch.draft_lengths),)](
        batch.draft_lengths,
        batch.cu_num_logits,
        none if masks is None else masks.row,
        none if masks is None else masks.words,
        none if edits is None else edits.num_entries,
        none if edits is None else edits.result.words,
        none if edits is None else edits.result.values,
        none if edits is None else edits.room.value_first,
        view,
        0 if masks is None else masks.words.stride(0),
        0 if edits is None else edits.result.words.shape[1],
        HAS_MASKS=masks is not None,
        HAS_EDITS=edits is not None,
        num_warps=1,
    )


@dataclass(frozen=True, eq=False)
class _Making:
    """The edits of a batch while they are made.

    Attributes:
        batch: The step.
        sources: What its requests bring.
        room: How much room that takes.
        result: The edits.
        num_entries: [B] int32.
        entry_count: [E] int64, how often an entry's id has been output.
        entry_flags: [E] int32, whether it was seen in the prompt, whether it is a stop id.
        entry_bias: [E] float32.
        entry_ids: [E] int32.
    """

    batch: Batch
    sources: EditSources
    room: EditRoom
    result: KernelEdits
    num_entries: Tensor
    entry_count: Tensor
    entry_flags: Tensor
    entry_bias: Tensor
    entry_ids: Tensor

    @staticmethod
    def of(batch: Batch, sources: EditSources) -> _Making:
        """Room for everything; what is added up starts at 0, in one go."""
        room, device = sources.room, batch.draft_lengths.device
        requests, words, entries = len(batch.draft_lengths), triton.cdiv(batch.vocab_size, 32), room.num_entries
        zeros = torch.zeros(requests * words + 2 * entries, dtype=torch.int64, device=device)
        flags, bias = zeros[requests * words + entries :].view(torch.int32).view(2, entries)
        result = KernelEdits(
            words=zeros[: requests * words].view(requests, words),
            values=torch.empty(room.num_values, device=device),
            value_first=room.value_first,
            row_request=room.row_request,
            vocab_size=batch.vocab_size,
        )
        return _Making(
            batch=batch,
            sources=sources,
            room=room,
            result=result,
            num_entries=torch.empty(requests, dtype=torch.int32, device=device),
            entry_count=zeros[requests * words :][:entries],
            entry_flags=flags,
            entry_bias=bias.view(torch.float32),
            entry_ids=torch.empty(entries, dtype=torch.int32, device=device),
        )

    def find_entries(self) -> None:
        """The distinct ids of each request, and what is known of each."""
        sources, room, words = self.sources, self.room, self.result.words
        lists = {
            Occurrence.PROMPT: sources.prompt.values,
            Occurrence.OUTPUT: sources.output.values,
            Occurrence.COUNTED: sources.counted.values,
            Occurrence.BIAS: sources.bias.values,
            Occurrence.STOP: sources.stops.values,
            Occurrence.WORD: room.last_ids,
            Occurrence.DRAFT: self.batch.draft_token_ids,
        }
        ids = torch.cat([lists[kind].to(torch.int64) for kind in Occurrence])
        requests = len(self.batch.draft_lengths)
        segments = len(Occurrence) * requests
        given = (ids, room.occurrence_cu, sources.repetition, sources.frequency, sources.presence)
        sizes = (len(ids), segments, segments.bit_length() + 1, requests, self.batch.vocab_size, words.shape[1])
        grid = (triton.cdiv(len(ids), _BLOCK),)
        pairs = words.view(torch.int32)
        if grid[0]:
            _mark_kernel[grid](*given, pairs, *sizes, BLOCK=_BLOCK)
        _prefix_kernel[(requests,)](pairs, self.num_entries, words.shape[1], BLOCK=_WORDS)
        if grid[0]:
            _fill_kernel[grid](
                *given,
                pairs,
                sources.bias_values,
                sources.counts,
                room.entry_cu,
                self.entry_ids,
                self.entry_count,
                self.entry_flags,
                self.entry_bias,
                *sizes,
                BLOCK=_BLOCK,
            )

    def compute(self, pointers: RowPointers, view: Tensor) -> None:
        """The values of all rows."""
        batch, sources, room = self.batch, self.sources, self.room
        masks = None if batch.target.processing is None else batch.target.processing.masks
        blocks = triton.cdiv(room.most_entries, _ENTRIES)
        if blocks:
            _values_kernel[(len(batch.target) * blocks,)](
                room.row_request,
                batch.cu_num_logits,
                batch.cu_drafts,
                batch.draft_token_ids,
                pointers.address,
                view,
                sources.repetition,
                sources.frequency,
                sources.presence,
                sources.masked_rows,
                self.num_entries,
                room.entry_cu,
                self.entry_ids,
                self.entry_count,
                self.entry_flags,
                self.entry_bias,
                room.value_first,
                self.result.values,
                blocks,
                DTYPE=TRITON_DTYPES[batch.target.dtype],
                VIEW=0 if masks is None else MASKS,
                BLOCK=_ENTRIES,
                # Product and sum are rounded apart, as the contract's formula is; fused, ties would break differently.
                enable_fp_fusion=False,
            )
        if len(sources.word_request):
            _bad_words_kernel[(len(sources.word_request),)](
                sources.word_request,
                sources.words.cu,
                sources.words.values,
                batch.draft_lengths,
                batch.cu_num_logits,
                batch.cu_drafts,
                batch.draft_token_ids,
                sources.prompt.cu,
                sources.prompt.values,
                sources.output.cu,
                sources.output.values,
                pointers.address,
                self.result.words.view(torch.int32),
                room.value_first,
                self.result.values,
                self.result.words.shape[1],
                DTYPE=TRITON_DTYPES[batch.target.dtype],
                num_warps=1,
            )
