"""The service's promise: whatever the draft, emitted tokens follow the target's law. ``chi_square`` derives limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sampler_kernels import Method
from tests.backends import BACKENDS
from tests.distribution.cases import (
    CONTEXT_CASES,
    NARROW_CASES,
    OPPOSITE,
    PROCESSED_CASES,
    WIDE_CASES,
    WIDE_PROCESSED_CASES,
    Case,
)
from tests.distribution.harness import accepted, decode, laws, waits_for

pytestmark = [pytest.mark.distribution, pytest.mark.parametrize("backend", BACKENDS)]

LONG, SHORT = 400_000, 200_000
_LONG = ("fp32", "fp16", "bf16", "block")


def assert_law(case: Case, *, seeds: int, length: int, backend: str) -> None:
    waiting = waits_for(case)
    if waiting:
        pytest.skip(waiting)
    fits = laws(case, seeds=seeds, length=length, backend=backend)
    assert min(fit.df for fit in fits) >= 10, "the limit is derived for as many cells"
    assert not [str(fit) for fit in fits if not fit.holds]


@pytest.mark.parametrize("case", NARROW_CASES, ids=str)
def test_every_position_and_pair_of_eight_tokens(case: Case, backend: str) -> None:
    assert_law(case, seeds=LONG if case.name in _LONG else SHORT, length=8, backend=backend)


@pytest.mark.parametrize("case", PROCESSED_CASES, ids=str)
def test_every_position_and_pair_over_processed_rows(case: Case, backend: str) -> None:
    assert_law(case, seeds=60_000, length=5, backend=backend)


@pytest.mark.parametrize("case", CONTEXT_CASES, ids=str)
def test_every_position_and_pair_where_the_context_counts(case: Case, backend: str) -> None:
    """Three tokens, two steps at the least for most: the law of every beginning of two is enumerated."""
    assert_law(case, seeds=60_000, length=3, backend=backend)


@pytest.mark.parametrize("case", [*WIDE_CASES, *WIDE_PROCESSED_CASES], ids=str)
def test_every_position_and_pair_over_a_large_vocabulary(case: Case, backend: str) -> None:
    assert_law(case, seeds=12_000, length=3, backend=backend)


def test_a_draft_that_is_as_wrong_as_can_be(backend: str) -> None:
    assert_law(OPPOSITE, seeds=200_000, length=1, backend=backend)


@pytest.mark.parametrize("name", ["fp32", "temperature 0.7", "id map", "all filters"])
def test_block_accepts_at_least_as_many_as_standard(name: str, backend: str) -> None:
    """In the mean, on the same seeds: never more than four standard errors of the difference below."""
    case = {case.name: case for case in (*NARROW_CASES, *PROCESSED_CASES)}[name]
    block = replace(case, params=replace(case.params, method=Method.BLOCK))
    if waiting := waits_for(case) or waits_for(block):
        pytest.skip(waiting)
    both = [accepted(one, seeds=50_000, backend=backend).astype(float) for one in (block, case)]
    more = both[0] - both[1]
    assert more.any(), "the two methods differ"
    assert more.mean() > -4 * more.std() / len(more) ** 0.5


def test_the_batch_does_not_matter(backend: str) -> None:
    """The same sequences in another batch, beside others: token for token."""
    case = NARROW_CASES[0]
    many = decode(case, seeds=2000, length=8, backend=backend)
    few = decode(case, seeds=50, length=8, backend=backend, first_seed=700)
    assert (many[700:750] == few).all()
