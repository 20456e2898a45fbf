"""Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), many counters at a time."""

from __future__ import annotations

import enum

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
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


def philox4x32(counter: Words, key: Words) -> tuple[Words, Words, Words, Words]:
    """Ten rounds on each of n counters.

    Args:
        counter: [4, n] uint64, words 0 .. 2^32 - 1, the first word first.
        key: [2, n] uint64, likewise.

    Returns:
        The four words, [n] uint64 each.
    """
    # A round multiplies words 0 and 2, and mixes each product's high half into word 3 or 1. Kept as two pairs, words
    # 2 and 0 in `even`, words 3 and 1 in `odd`, so that a round is five operations on [2, n].
    even, odd = counter[2::-2], counter[3::-2]
    for round_key in (key[::-1] + _WEYL * _ROUND) & _MASK:
        product = even * _MULTIPLIERS
        even, odd = (product >> _HALF)[::-1] ^ odd ^ round_key, (product & _MASK)[::-1]
    return even[1], odd[1], even[0], odd[0]


def uniform(seed: Ints, position: Ints, purpose: Purpose, s: Ints | int) -> NDArray[np.float64]:
    """One uniform for each decision: key = seed, counter = (position, purpose, s).

    Args:
        seed: [n], the bits of the unsigned seed.
        position: [n], the bits of the unsigned position of the token that the row predicts.
        purpose: Which kind of decision.
        s: [n], the row's index in its step for ACCEPT and DRAFT; 0 for DRAW.

    Returns:
        [n] in the open interval (0, 1): 52 random bits and a half, so neither end is reached.
    """
    counter, key = np.empty((4, len(seed)), np.uint64), np.empty((2, len(seed)), np.uint64)
    for words, bits in ((counter, position.view(np.uint64)), (key, seed.view(np.uint64))):
        words[0], words[1] = bits & _MASK, bits >> _HALF
    counter[2], counter[3] = purpose, s
    first, second, _, _ = philox4x32(counter, key)
    return (((first << np.uint64(20)) | (second >> np.uint64(12))).astype(np.float64) + 0.5) * 2.0**-52
