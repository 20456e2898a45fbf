"""What a parameter set asks of processing, as arrays; made once for each set, which is immutable."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from sampler_kernels.params import SamplingParams

WORD_BITS = 32
"""Ids whose bits share a word of a mask."""


@dataclass(frozen=True, eq=False)
class ProcessingSet:
    """One parameter set's processing. What is off has its neutral value, filters at temperature 0 included.

    Attributes:
        masks: [1, words] int32, or [k + 1, words] where rows have masks of their own; no line where all ids are
            allowed.
        log_min_p: ln of min-p, -inf where off.
        top_k: 0 where off.
        top_p: 1 where off.
        repetition: Repetition penalty.
        frequency: Frequency penalty.
        presence: Presence penalty.
        min_tokens: 0 where off.
        stop_ids: int64; none where ``min_tokens`` is off.
        bias_ids: int64, distinct.
        bias_values: float32.
        word_ids: int64, bad words end to end.
        word_lengths: int64, of each word.
    """

    masks: NDArray[np.int32]
    log_min_p: float
    top_k: int
    top_p: float
    repetition: float
    frequency: float
    presence: float
    min_tokens: int
    stop_ids: NDArray[np.int64]
    bias_ids: NDArray[np.int64]
    bias_values: NDArray[np.float32]
    word_ids: NDArray[np.int64]
    word_lengths: NDArray[np.int64]

    @property
    def penalises(self) -> bool:
        """Whether ids that came before are penalised."""
        return self.repetition != 1 or self.frequency != 0 or self.presence != 0

    @property
    def edits(self) -> bool:
        """Whether single elements may change."""
        return self.penalises or len(self.stop_ids) + len(self.bias_ids) + len(self.word_ids) > 0

    @property
    def filters(self) -> bool:
        """Whether a row may be cut."""
        return self.log_min_p > -math.inf or self.top_k > 0 or self.top_p < 1


_made: WeakKeyDictionary[SamplingParams, tuple[int, ProcessingSet]] = WeakKeyDictionary()


def processing_set(params: SamplingParams, vocab_size: int) -> ProcessingSet:
    """The processing of a parameter set that ``checks`` let pass for rows of ``vocab_size`` ids."""
    known = _made.get(params)
    if known is None or known[0] != vocab_size:
        known = _made[params] = (vocab_size, _make(params, vocab_size))
    return known[1]


def _make(params: SamplingParams, vocab_size: int) -> ProcessingSet:
    random = params.temperature > 0
    min_p = params.min_p if random else 0.0
    rows = params.allowed_token_ids_by_row
    if rows is None:
        rows = [] if params.allowed_token_ids is None else [params.allowed_token_ids]
    return ProcessingSet(
        masks=_packed(rows, vocab_size),
        log_min_p=math.log(min_p) if min_p > 0 else -math.inf,
        top_k=params.top_k if random and params.top_k < vocab_size else 0,
        top_p=params.top_p if random else 1.0,
        repetition=params.repetition_penalty,
        frequency=params.frequency_penalty,
        presence=params.presence_penalty,
        min_tokens=params.min_tokens,
        stop_ids=_ids(params.stop_token_ids if params.min_tokens > 0 else ()),
        bias_ids=_ids(list(params.logit_bias)),
        bias_values=np.array(list(params.logit_bias.values()), np.float32),
        word_ids=_ids([token for word in params.bad_words for token in word]),
        word_lengths=_ids([len(word) for word in params.bad_words]),
    )


def _ids(ids: Sequence[int]) -> NDArray[np.int64]:
    return np.array(ids, np.int64)


def _packed(rows: Sequence[Sequence[int]], vocab_size: int) -> NDArray[np.int32]:
    """[len(rows), words]: the bit of each listed id set."""
    bits = np.zeros((len(rows), -(-vocab_size // WORD_BITS) * WORD_BITS), np.uint8)
    for line, ids in zip(bits, rows, strict=True):
        line[np.asarray(ids, np.int64)] = 1
    return np.packbits(bits, axis=1, bitorder="little").view("<i4").astype(np.int32)
