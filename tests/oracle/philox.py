"""Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) and the step's uniforms."""

from __future__ import annotations

ACCEPT, DRAW, DRAFT_DRAW = 0, 1, 2
"""The purposes: the accept test, a draw from the target or a residual, a draw on the draft side."""

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)

Words = tuple[int, int, int, int]


def philox4x32_10(counter: Words, key: tuple[int, int]) -> Words:
    """Ten rounds of Philox 4x32 over four 32-bit counter words and two 32-bit key words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        first = _MULTIPLIERS[0] * c0
        second = _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (second >> 32) ^ c1 ^ k0,
            second & _MASK,
            (first >> 32) ^ c3 ^ k1,
            first & _MASK,
        )
        k0 = (k0 + _KEY_STEPS[0]) & _MASK
        k1 = (k1 + _KEY_STEPS[1]) & _MASK
    return c0, c1, c2, c3


def uniform(seed: int, position: int, purpose: int, s: int) -> float:
    """The uniform in the open interval (0, 1) at (seed, absolute position, purpose, s).

    52 bits of the first two words, shifted by half a step: (bits + 0.5) * 2**-52 is exact in fp64.
    """
    counter = (position & _MASK, position >> 32, purpose, s)
    w0, w1, _, _ = philox4x32_10(counter, (seed & _MASK, seed >> 32))
    return (((w0 << 32 | w1) >> 12) + 0.5) * 2.0**-52


def accept_uniform(seed: int, position: int, row: int) -> float:
    """The uniform of the decision on the draft token at `row`; the row's index keeps later steps from reusing it."""
    return uniform(seed, position + row, ACCEPT, row)


def draw_uniform(seed: int, position: int, row: int) -> float:
    """The uniform of the draw at `row`: a function of the absolute position alone."""
    return uniform(seed, position + row, DRAW, 0)


def draft_uniform(seed: int, position: int, row: int) -> float:
    """The uniform with which a draft side that follows the contract draws the draft token at `row`."""
    return uniform(seed, position + row, DRAFT_DRAW, row)
