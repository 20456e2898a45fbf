"""The entries of a batch: one for each id of each request that anything sparse touches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sampler_kernels.batch import Batch
from sampler_kernels.processing import EditSources, Segments
from sampler_kernels.segments import Ints

Bools = NDArray[np.bool_]

_EXTRA, _PROMPT, _OUTPUT = 0, 1, 2
"""What an id is known from, in ascending order of what that means: the last of its occurrences says all."""

_KIND_BITS = 2


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries in the order of their keys.

    Attributes:
        key: [E] request * V + id.
        count: [E], how often the request's output history has the id; 0 where nothing is penalised.
        seen: [E], whether prompt or output history has it.
        bias: [E] float32, 0 for none.
        stop: [E], whether it is a stop id that may have to be masked.
        window: [D], the entry of each draft token of a request that penalises; -1 for the others and for placeholders.
        word: [words], the entry of each bad word's last id.
    """

    key: Ints
    count: Ints
    seen: Bools
    bias: NDArray[np.float32]
    stop: Bools
    window: Ints
    word: Ints

    @staticmethod
    def of(batch: Batch, sources: EditSources) -> Entries:
        """The entries of a batch: everything sorted once, with what it is known from in the lowest bits."""
        vocab = batch.vocab_size
        penalised = penalises(sources)
        lengths = batch.draft_lengths.numpy()
        drafts = _Ids(batch.draft_token_ids.numpy(), np.repeat(np.arange(len(lengths)), lengths), vocab)
        word = _Ids(sources.words.values.numpy()[sources.words.cu.numpy()[1:] - 1], sources.word_request.numpy(), vocab)
        bias, stops = _Ids.of(sources.bias, vocab), _Ids.of(sources.stops, vocab)
        counted = _Ids.of(sources.counted, vocab)

        occurrences = np.concatenate(
            [
                *(ids.keys() << _KIND_BITS | _EXTRA for ids in (drafts.owned_by(penalised), word, bias, stops)),
                _Ids.of(sources.prompt, vocab).owned_by(penalised).keys() << _KIND_BITS | _PROMPT,
                *(
                    ids.owned_by(penalised).keys() << _KIND_BITS | _OUTPUT
                    for ids in (_Ids.of(sources.output, vocab), counted)
                ),
            ]
        )
        occurrences.sort()
        own_key, kind = occurrences >> _KIND_BITS, occurrences & ((1 << _KIND_BITS) - 1)
        last = np.flatnonzero(np.append(own_key[1:] != own_key[:-1], [True] * (len(own_key) > 0)))
        key = own_key[last]
        count = np.diff(np.cumsum(kind == _OUTPUT)[last], prepend=0)
        kept = counted.inside & penalised[counted.request]
        # Each id that came with a count has been counted once as an id.
        np.add.at(count, np.searchsorted(key, counted.keys(kept)), sources.counts.numpy()[kept] - 1)

        values = np.zeros(len(key), np.float32)
        values[np.searchsorted(key, bias.keys())] = sources.bias_values.numpy()
        stop = np.zeros(len(key), np.bool_)
        stop[np.searchsorted(key, stops.keys())] = True
        window = np.full(len(drafts.ids), -1)
        kept = drafts.inside & penalised[drafts.request]
        window[kept] = np.searchsorted(key, drafts.keys(kept))
        return Entries(key, count, kind[last] > _EXTRA, values, stop, window, np.searchsorted(key, word.keys()))


def penalises(sources: EditSources) -> Bools:
    """[B], requests with a penalty."""
    neutral = (sources.repetition == 1) & (sources.frequency == 0) & (sources.presence == 0)
    penalised: Bools = (~neutral).numpy()
    return penalised


class _Ids:
    """Ids with whose they are; those outside the vocabulary have no key."""

    def __init__(self, ids: NDArray[np.integer], request: Ints, vocab: int) -> None:
        self.ids, self.request, self._vocab = ids.astype(np.int64, copy=False), request, vocab
        self.inside: Bools = (ids >= 0) & (ids < vocab)

    @classmethod
    def of(cls, segments: Segments, vocab: int) -> _Ids:
        cu = segments.cu.numpy()
        return cls(segments.values.numpy(), np.repeat(np.arange(len(cu) - 1), np.diff(cu)), vocab)

    def owned_by(self, requests: Bools) -> _Ids:
        """Those of some requests."""
        if not len(self.ids) or requests.all():
            return self
        kept = requests[self.request]
        return _Ids(self.ids[kept], self.request[kept], self._vocab)

    def keys(self, kept: Bools | None = None) -> Ints:
        """Keys of those inside the vocabulary, or of some of them."""
        kept = self.inside if kept is None else kept
        if kept.all():
            return self.request * self._vocab + self.ids
        return self.request[kept] * self._vocab + self.ids[kept]
