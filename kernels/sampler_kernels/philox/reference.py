"""Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) over int64 tensors."""

from __future__ import annotations

import enum

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_MULTIPLIERS = torch.tensor([[0xCD9E8D57], [0xD2511F53]])
"""Of counter words 2 and 0; the reverse of the words' order, since each product feeds the other pair."""
_WEYL = torch.tensor([0x9E3779B9, 0xBB67AE85])
_ROUND = torch.arange(10)


class Purpose(enum.IntEnum):
    """What a uniform is for: the third word of the counter."""

    ACCEPT = 0
    DRAW = 1
    DRAFT = 2
    """The draft side's own draw; the service never uses it, clients may."""


def philox4x32(counter: Tensor, key: Tensor) -> Tensor:
    """Ten rounds on each of n counters.

    Args:
        counter: [4, n] int64, words 0 .. 2^32 - 1, the first word first.
        key: [2, n] int64, likewise.

    Returns:
        [4, n] int64, words likewise.
    """
    # A round multiplies words 0 and 2, and mixes each product's high half into word 3 or 1. Kept as two pairs:
    # `even` holds words 2 and 0, `odd` holds words 3 and 1, so that a round is a handful of operations on [2, n].
    even, odd = counter[[2, 0]], counter[[3, 1]]
    keys = (key.flip(0) + _WEYL.flip(0)[:, None] * _ROUND[:, None, None]) & _MASK  # [10, 2, n]
    for round_key in keys:
        product = even * _MULTIPLIERS  # wraps in int64, which keeps all 64 bits
        high, low = (product >> 32) & _MASK, product & _MASK
        even, odd = high.flip(0) ^ odd ^ round_key, low.flip(0)
    return torch.stack([even[1], odd[1], even[0], odd[0]])


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
    words = philox4x32(
        torch.stack([position & _MASK, (position >> 32) & _MASK, torch.full_like(position, purpose), s.expand_as(position)]),
        torch.stack([seed & _MASK, (seed >> 32) & _MASK]),
    )
    bits = (words[0] << 20) | (words[1] >> 12)
    return (bits.double() + 0.5) * 2.0**-52
