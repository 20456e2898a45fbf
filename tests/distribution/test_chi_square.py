"""The judge of the laws: it lets what is fair pass, and finds what is not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2  # type: ignore[import-untyped]

from tests.distribution.chi_square import MIN_EXPECTED, Fit, _pooled, fit, limit

LAW = np.array([0.3, 0.25, 0.2, 0.1, 0.08, 0.05, 0.02, 0.0])


def counts(law: np.ndarray[tuple[int], np.dtype[np.float64]], n: int, seed: int = 0) -> Fit:
    return fit("drawn", np.random.default_rng(seed).multinomial(n, law), LAW)


@pytest.mark.parametrize("seed", range(20))
def test_a_fair_sample_holds(seed: int) -> None:
    found = counts(LAW, 400_000, seed)
    assert (found.holds, found.df, found.impossible) == (True, 6, 0)


def test_a_shift_of_a_few_percent_is_found() -> None:
    biased = LAW * (1 + 0.03 * np.array([1, -1, 1, -1, 1, -1, 1, 1]))
    assert not counts(biased / biased.sum(), 400_000).holds


def test_one_impossible_token_is_found() -> None:
    observed = (LAW * 1000).astype(np.int64)
    observed[-1] = 1
    found = fit("drawn", observed, LAW)
    assert (found.holds, found.impossible) == (False, 1)


def test_nothing_to_test_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to test"):
        fit("drawn", np.array([3, 1]), np.array([0.9, 0.1]))


@pytest.mark.parametrize("seed", range(50))
def test_pooled_cells_are_large_enough_and_lose_nothing(seed: int) -> None:
    generator = np.random.default_rng(seed)
    expected = generator.exponential(size=generator.integers(2, 60)) * generator.choice([0.5, 3.0, 20.0])
    observed = generator.poisson(expected).astype(np.float64)
    got_observed, got_expected = _pooled(observed, expected)
    assert got_expected.sum() == pytest.approx(expected.sum())
    assert got_observed.sum() == observed.sum()
    assert len(got_expected) == 1 or got_expected.min() >= MIN_EXPECTED
    large = expected[expected >= MIN_EXPECTED]
    assert np.isin(large, got_expected).sum() >= len(large) - 1, "all stay, but for one that may take in the rest"


def test_chance_exceeds_the_limit_as_rarely_as_stated() -> None:
    tails = [chi2.sf(limit(df), df) for df in range(10, 2000)]
    assert tails == sorted(tails, reverse=True)
    assert chi2.sf(limit(15), 15) < 5e-9
    assert 1000 * tails[0] < 1 / 20_000
