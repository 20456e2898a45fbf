from __future__ import annotations

import pytest

from tests.oracle import philox

KNOWN_ANSWERS = [
    ("0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_known_answers(counter: str, key: str, words: str) -> None:
    c0, c1, c2, c3 = (int(w, 16) for w in counter.split())
    k0, k1 = (int(w, 16) for w in key.split())
    assert philox.philox4x32_10((c0, c1, c2, c3), (k0, k1)) == tuple(int(w, 16) for w in words.split())


def test_the_words_of_seed_position_purpose_and_s() -> None:
    """The third known answer, read as seed and counter: each word in its place."""
    seed, position = 0x299F31D0A4093822, 0x85A308D3243F6A88
    bits = (0xD16CFE09 << 32 | 0x94FDCCEB) >> 12
    assert philox.uniform(seed, position, 0x13198A2E, 0x03707344) == (bits + 0.5) / 2**52


def test_uniforms_of_a_row() -> None:
    """The position is absolute; s is the row in its step for accepts and drafts, 0 for draws."""
    seed, position = 2**63 + 5, 2**32 - 1
    assert philox.accept_uniform(seed, position, 2) == philox.uniform(seed, 2**32 + 1, 0, 2)
    assert philox.draft_uniform(seed, position, 2) == philox.uniform(seed, 2**32 + 1, 2, 2)
    assert philox.draw_uniform(seed, position, 2) == philox.uniform(seed, 2**32 + 1, 1, 0)
