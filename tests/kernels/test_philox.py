"""Known answers, and uniforms against Philox written with Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

from sampler_kernels.philox.reference import Purpose, philox4x32, uniform
from tests.kernels.steps import signed, true_uniform

KNOWN = [
    ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


def test_known_answers() -> None:
    counter = np.array([c for c, _, _ in KNOWN], np.uint64).T
    key = np.array([k for _, k, _ in KNOWN], np.uint64).T
    words = np.stack(philox4x32(counter, key)).T
    assert words.tolist() == [w for _, _, w in KNOWN]


@pytest.mark.parametrize("purpose", list(Purpose))
def test_uniform_is_the_counter_s(purpose: Purpose) -> None:
    """Every bit of seed and position counts, the highest ones included."""
    rng = np.random.default_rng(0)
    seeds = [0, 1, 2**32, 2**63, 2**64 - 1, *(int(x) for x in rng.integers(0, 2**63, 20))]
    positions = [0, 2**32 - 1, 2**64 - 1, 2**63, 7, *(int(x) for x in rng.integers(0, 2**63, 20))]
    s = rng.integers(0, 129, len(seeds))
    got = uniform(np.array([signed(x) for x in seeds]), np.array([signed(x) for x in positions]), purpose, s)
    want = [true_uniform(a, b, purpose, int(c)) for a, b, c in zip(seeds, positions, s, strict=True)]
    assert got.tolist() == want


def test_open_interval() -> None:
    """The half keeps both ends out: the extreme bit patterns are representable and inside."""
    assert (0 + 0.5) * 2.0**-52 > 0
    assert ((2**52 - 1) + 0.5) * 2.0**-52 < 1
    u = uniform(np.arange(200_000), np.zeros(200_000, np.int64), Purpose.DRAW, 0)
    assert u.min() > 0
    assert u.max() < 1
    # Mean of n uniforms: standard deviation 1 / sqrt(12 n); 6 of them.
    assert abs(u.mean() - 0.5) < 6 / np.sqrt(12 * len(u))
