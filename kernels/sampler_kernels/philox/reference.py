"""Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), many counters at a time."""

from __future__ import annotations

import enum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Words = NDArray[np.uint64]

_MASK = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = np.array([[0xCD9E8D57], [0xD2511F53]], np.uint64)
"""Of counter words 2 and 0."""
_WEYL = np.array([[0xBB67AE85], [0x9E3779B9]], np.uint64)
"""Of key words 1 and 0."""
_ROUND = np.arange(10, dtype=np.uint64)[:, None, None]


class Purpose(enum.IntEnum):
    """What a uniform is for: the third word of the counter."""

    ACCEPT = 0
    DRAW = 1
    DRAFT = 2
    """The draft side's own draw; the service never uses it, clients may."""


def philox4x32(counter: Words, key: Words) -> Words:
    """Ten rounds on each of n counters.

    Args:
        counter: [4, n] uint64, words 0 .. 2^32 - 1, the first word first.
        key: [2, n] uint64, likewise.

    Returns:
        [4, n] uint64, words likewise.
    """
    # A round multiplies words 0 and 2, and mixes each product's high half into word 3 or 1. Kept as two pairs, words
    # 2 and 0 in `even`, words 3 and 1 in `odd`, so that a round is five operations on [2, n].
    even, odd = counter[2::-2], counter[3::-2]
    for round_key in (key[::-1] + _WEYL * _ROUND) & _MASK:
        product = even * _MULTIPLIERS
        even, odd = (product >> _HALF)[::-1] ^ odd ^ round_key, (product & _MASK)[::-1]
    return np.stack([even[1], odd[1], even[0], odd[0]])


def uniform(seed: Tensor, position: Tensor, purpose: Purpose, s: Tensor) -> Tensor:
    """One uniform for each decision: key = seed, counter = (position, purpose, s).

    Args:
        seed: [n] int64, the bits of the unsigned seed.
        position: [n] int64, the bits of the unsigned position of the token that the row predicts.
        purpose: Which kind of decision.
        s: [n] int64, the row's index in its step for ACCEPT and DRAFT, 0 for DRAW.

    Returns:
        [n] float64 in the open interval (0, 1): 52 random bits and a half, so neither end is reached.
    """
    at, key = position.numpy().view(np.uint64), seed.numpy().view(np.uint64)
    counter = np.empty((4, len(at)), np.uint64)
    counter[:] = at & _MASK, at >> _HALF, np.full_like(at, purpose), s.numpy()
    words = philox4x32(counter, np.stack([key & _MASK, key >> _HALF]))
    bits = (words[0] << np.uint64(20)) | (words[1] >> np.uint64(12))
    return torch.from_numpy((bits.astype(np.float64) + 0.5) * 2.0**-52)
