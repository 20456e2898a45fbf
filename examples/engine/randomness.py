"""The service's randomness, for the draws that the engine makes itself: Philox4x32-10 and inverse-CDF draws.

The generator is that of Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3". Keyed by request seed and
counted by position, it gives the same drafts to the same request whatever else is in its batch.
"""

import numpy as np

from engine.arrays import Floats, Ints, Logits, Words64

PURPOSE_DRAFT = 2
"""The purpose that is reserved for draws on the draft side; the service uses 0 and 1."""

_LOW_WORD = np.uint64(0xFFFFFFFF)
_WORD_BITS = np.uint64(32)
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_ROUNDS = 10


def philox(counter: Words64, key: Words64) -> Words64:
    """Philox4x32-10: `counter` [..., 4] and `key` [..., 2] hold 32-bit words; returns four words, [..., 4]."""
    c0, c1, c2, c3 = np.moveaxis(counter, -1, 0)
    k0, k1 = np.moveaxis(key, -1, 0)
    for _ in range(_ROUNDS):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1 = (product1 >> _WORD_BITS) ^ c1 ^ k0, product1 & _LOW_WORD
        c2, c3 = (product0 >> _WORD_BITS) ^ c3 ^ k1, product0 & _LOW_WORD
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW_WORD, (k1 + _KEY_STEPS[1]) & _LOW_WORD
    return np.stack([c0, c1, c2, c3], axis=-1)


def draft_uniforms(seeds: Words64, positions: Words64, rows: Ints) -> Floats:
    """[n] uniforms in (0, 1): seed of each request, absolute position of each drafted token, its row in the step."""
    counter = np.stack(
        [
            positions & _LOW_WORD,
            positions >> _WORD_BITS,
            np.full_like(positions, PURPOSE_DRAFT),
            rows.astype(np.uint64),
        ],
        axis=-1,
    )
    key = np.stack([seeds & _LOW_WORD, seeds >> _WORD_BITS], axis=-1)
    words = philox(counter, key)
    top_52_bits = ((words[..., 0] << _WORD_BITS) | words[..., 1]) >> np.uint64(12)
    return (top_52_bits.astype(np.float64) + 0.5) * 2.0**-52


def softmax(logits: Logits, temperature: float) -> Floats:
    """Probabilities [..., V] in double precision of `logits` / `temperature`, temperature above 0."""
    weights = np.exp((logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)) / temperature)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def draw(logits: Logits, temperature: float, uniforms: Floats) -> Ints:
    """[n] ids, one per row of `logits` [n, V]: at temperature 0 the argmax, else the inverse CDF at `uniforms` [n].

    The inverse CDF in id order is the smallest id whose inclusive prefix mass exceeds u times the total.
    """
    if temperature == 0:
        return np.asarray(logits.argmax(axis=-1))
    prefix = softmax(logits, temperature).cumsum(axis=-1)
    return np.asarray((prefix > uniforms[:, None] * prefix[:, -1:]).argmax(axis=-1))
