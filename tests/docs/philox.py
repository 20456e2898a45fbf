"""Philox4x32-10 over arrays of counters and seeds, for the numbers that the documents print."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Floats = NDArray[np.float64]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32_10(counter: Sequence[Words], key: Sequence[Words]) -> list[Words]:
    """Four output words for each counter [n] x 4 and key [n] x 2; every word a 32-bit number held in 64 bits."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> _HALF) ^ c[1] ^ k[0], b & _LOW, (a >> _HALF) ^ c[3] ^ k[1], a & _LOW]
        k = [(k[0] + np.uint64(0x9E3779B9)) & _LOW, (k[1] + np.uint64(0xBB67AE85)) & _LOW]
    return c


def uniform(seed: Words, position: Words, purpose: int, s: int) -> Floats:
    """[n] the uniforms of seeds [n] at positions [n], by the formula of ``docs/semantics.md``."""
    counter = [position & _LOW, position >> _HALF, np.full_like(seed, purpose), np.full_like(seed, s)]
    w0, w1, _, _ = philox4x32_10(counter, [seed & _LOW, seed >> _HALF])
    bits = (w0 << _HALF | w1) >> np.uint64(12)
    return (bits.astype(np.float64) + 0.5) * 2.0**-52
