"""Min-p, top-k and top-p against a full stable sort in fp64: what is kept, its mass, and every way to find it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sampler_kernels import LogprobsMode, SamplingParams, verify
from sampler_kernels.elements import load, load_at, load_groups
from sampler_kernels.filters.reference import _reaching
from sampler_kernels.layout import GROUP
from sampler_kernels.rows import LOGIT_DTYPES
from sampler_kernels.stats.reference import LazyRowStats
from sampler_kernels.stats.temperatures import target_temperature
from tests.kernels.processing import F32, Request, make_step, processed_batch, true_kept, true_row

WIDTHS = [1, 2, 5, 127, 128, 129, 1000, 4096, 4097, 9000, 40_000, 128_256]
MASS_TOLERANCE = 1e-6
"""Of masses relative to their sum, and of the place where top-p cuts: the contract's bound for decisions."""


def filtered(requests: Sequence[Request]) -> LazyRowStats:
    batch = processed_batch(requests)
    return LazyRowStats(batch.target, target_temperature(batch), raw=True)


def whole(stats: LazyRowStats) -> F32:
    """All rows, cut."""
    row = np.arange(len(stats.rows))
    stats.totals(row)
    loaded: F32 = load(stats.rows, row, 0, stats.rows.max_width).numpy()
    return loaded


def check(requests: Sequence[Request]) -> None:
    """What is kept, its place, its mass, tile by tile."""
    stats = filtered(requests)
    rows = whole(stats)
    totals = stats.totals(np.arange(len(rows)))
    for row, request in enumerate(requests):
        x = true_row(request, 0)
        found = np.flatnonzero(rows[row] > -np.inf)
        most, least = (true_kept(x, request.params, shift) for shift in (MASS_TOLERANCE, -MASS_TOLERANCE))
        assert len(least) <= len(found) <= len(most), request.params
        kept = most[: len(found)]
        assert found.tolist() == sorted(kept), request.params
        np.testing.assert_array_equal(rows[row][found], x[found])
        mass = np.zeros(len(x))
        mass[kept] = np.exp((x[kept].astype(np.float64) - x.max()) / request.params.temperature)
        by_tile = np.add.reduceat(mass, np.arange(0, len(x), 4096))
        np.testing.assert_allclose(totals.tile_masses[row], by_tile, atol=MASS_TOLERANCE * mass.sum())


def peaked(rng: np.random.Generator, width: int) -> F32:
    """A language model's row: a head far above a bulk."""
    x = rng.normal(size=width) * 1.5
    x[rng.integers(0, width, 40)] += rng.random(40) * 15
    return x.astype(np.float32)


def flat(rng: np.random.Generator, width: int) -> F32:
    return rng.normal(size=width).astype(np.float32)


def equal(rng: np.random.Generator, width: int) -> F32:
    """Few values, the two zeros among them."""
    return rng.choice(np.array([-1.5, -0.0, 0.0, 1.0, 2.5], np.float32), width)


def sparse(rng: np.random.Generator, width: int) -> F32:
    """Nearly everything masked by the client."""
    x = np.full(width, -np.inf, np.float32)
    at = rng.integers(0, width, max(1, width // 50))
    x[at] = rng.normal(size=len(at))
    return x


FILTERS: list[dict[str, Any]] = [
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 1500},
    {"top_p": 0.3},
    {"top_p": 0.9},
    {"top_p": 0.999},
    {"top_p": 1e-7},
    {"min_p": 1.0},
    {"min_p": 0.05},
    {"min_p": 1e-6},
    {"min_p": 0.02, "top_k": 50, "top_p": 0.9},
    {"min_p": 0.02, "top_p": 0.5},
    {"top_k": 40, "top_p": 0.75, "temperature": 2.5},
    {"top_k": 3000, "top_p": 0.95, "temperature": 0.3},
    {"min_p": 0.3, "top_k": 2000},
    {"top_p": 0.7, "temperature": 40.0},
    {"top_p": 0.7, "temperature": 0.05},
]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", [peaked, flat, equal, sparse])
def test_what_is_kept_and_its_mass(width: int, kind: Any) -> None:  # noqa: ANN401
    rng = np.random.default_rng(width)
    dtypes = LOGIT_DTYPES if width < 10_000 else (torch.float32, torch.bfloat16)
    for dtype in dtypes:
        rows = [torch.from_numpy(kind(rng, width)).to(dtype)[None] for _ in FILTERS]
        requests = [Request(x, (), SamplingParams(**given)) for x, given in zip(rows, FILTERS, strict=True)]
        check([*requests, Request(rows[0])])  # the last row is not filtered


def kept_of(logits: Sequence[float], dtype: torch.dtype = torch.float32, **given: Any) -> list[int]:  # noqa: ANN401
    """By id, in a row of a few elements and in one of several tiles that has the same elements first."""
    found = []
    for width in (len(logits), 9000):
        row = torch.full((1, width), -float("inf"), dtype=dtype)
        row[0, : len(logits)] = torch.tensor(logits, dtype=dtype)
        found.append(np.flatnonzero(whole(filtered([Request(row, (), SamplingParams(**given))]))[0] > -np.inf).tolist())
    assert found[0] == found[1]
    return [int(i) for i in found[0]]


def test_ties_at_top_k_go_to_the_lowest_ids() -> None:
    assert kept_of([1, 2, 2, 2, 0], top_k=2) == [1, 2]
    assert kept_of([0.0, -0.0, 0.0, -0.0], top_k=3) == [0, 1, 2]
    assert kept_of([-1, 5, -1, -1], top_k=3) == [0, 1, 2]


def test_ties_at_top_p_go_to_the_lowest_ids() -> None:
    """Before id 8 lies a mass of .8, which is not below .79999."""
    assert kept_of([0.0] * 10, top_p=0.8) == list(range(8))
    assert kept_of([0.0] * 10, top_p=0.80002) == list(range(9))


def test_min_p_has_no_tie_rule() -> None:
    assert kept_of([0, -1.386294, -1.386294, -1.4], min_p=0.25) == [0, 1, 2]
    assert kept_of([3, 3, 3], min_p=1.0) == [0, 1, 2]


def test_filters_work_on_what_is_left() -> None:
    logits = [float(np.log(p)) for p in (0.4, 0.3, 0.2, 0.1)]
    assert kept_of(logits, min_p=0.3, top_p=0.75) == [0, 1]
    assert kept_of(logits, top_p=0.75) == [0, 1, 2]
    assert kept_of(logits, top_k=3, top_p=0.77) == [0, 1]  # .7 of .9 lies before the third
    assert kept_of(logits, top_k=3, top_p=0.78) == [0, 1, 2]
    assert kept_of(logits, min_p=0.5, top_k=3) == [0, 1, 2]


def test_temperature_comes_before_filters() -> None:
    logits = [float(np.log(p)) for p in (0.5, 0.3, 0.15, 0.05)]
    assert kept_of(logits, min_p=0.2) == [0, 1, 2]
    assert kept_of(logits, min_p=0.2, temperature=2.0) == [0, 1, 2, 3]


def test_at_least_one_token_is_kept() -> None:
    for given in ({"top_p": 1e-9}, {"top_k": 1}, {"min_p": 1.0}):
        assert kept_of([1.0, 3.0, 2.0], **given) == [1]


def test_masked_ids_take_no_place() -> None:
    assert kept_of([5, 4, 3, 2], top_k=2, allowed_token_ids=[1, 3]) == [1, 3]
    assert kept_of([5, 4, 3, 2], top_k=3, allowed_token_ids=[1, 3]) == [1, 3]
    assert kept_of([5, 4, 3], min_p=0.9, bad_words=[[0]]) == [1]


@pytest.mark.parametrize("dtype", LOGIT_DTYPES)
def test_the_edge_of_min_p_to_the_last_bit(dtype: torch.dtype) -> None:
    """Neighbours of the threshold in the row's own dtype, for thresholds of all sizes."""
    rng = np.random.default_rng(1)
    for temperature in (1.0, 0.3, 7.0, 1e-5, 1e5):
        requests = []
        for min_p in rng.random(20):
            maximum = torch.tensor(rng.normal() * 10, dtype=dtype)
            edge = (maximum.double() + temperature * (np.log(min_p) - 1e-5)).to(dtype)
            near = [edge]
            for direction in (-1.0, 1.0):
                step = edge
                for _ in range(3):
                    step = torch.nextafter(step, torch.tensor(direction * 6e4, dtype=dtype))
                    near.append(step)
            row = torch.stack([maximum, *(x for x in near if x <= maximum)])
            row = torch.cat([row, torch.full((8 - len(row),), -float("inf"), dtype=dtype)])
            requests.append(Request(row[None], (), SamplingParams(temperature=temperature, min_p=float(min_p))))
        check(requests)


def test_a_misleading_sample_does_not_mislead() -> None:
    """Top-p narrows a long list by every so manieth element: hide the mass from it, or show it nothing else."""
    n = 60_000
    step = n // 2048
    for high, low in ((slice(0, None, step), 2.0), (slice(1, None, step), 2.0)):
        x = torch.linspace(0, 0.001, n)
        x[high] += low
        for top_p in (0.1, 0.5, 0.9):
            check([Request(x[None], (), SamplingParams(top_p=top_p))])


@pytest.mark.parametrize("count", [3, GROUP, 5 * GROUP, 5 * GROUP + 7])
def test_a_head_that_reaches_the_mass_exactly_is_long_enough(count: int) -> None:
    """An element stays while the mass before it is below the threshold, not while it is at it."""
    masses = np.ones(count, np.float32)
    for n in (1, 2, count // 2, count - 1, count):
        assert _reaching(masses, float(n)) == max(1, n)
        assert _reaching(masses, n - 0.5) == max(1, n)
    assert _reaching(masses, -1.0) == 1
    assert _reaching(masses, count + 0.5) == count + 1


def test_greedy_takes_no_notice_of_filters() -> None:
    logits = torch.tensor([[0.0, 1.0, 0.5]])
    modes = [LogprobsMode.PROCESSED_LOGPROBS]
    params = SamplingParams(temperature=0, top_k=1, top_p=0.1, min_p=1.0, logprobs_modes=modes, top_logprobs=3)
    plain = SamplingParams(temperature=0, logprobs_modes=modes, top_logprobs=3)
    both = [verify(make_step([Request(logits, (), p)]), backend="cpu").logprobs[modes[0]] for p in (params, plain)]
    assert both[0].top_ids.tolist() == [1, 2, 0]
    assert both[0].top_values.tolist() == both[1].top_values.tolist()


@pytest.mark.parametrize("width", [50, 5000])
def test_every_way_to_read_an_element_is_cut(width: int) -> None:
    rng = np.random.default_rng(width)
    rows = [torch.from_numpy(equal(rng, width))[None] for _ in FILTERS]
    requests = [Request(x, (), SamplingParams(**given)) for x, given in zip(rows, FILTERS, strict=True)]
    stats = filtered(requests)
    cut = np.pad(whole(stats), ((0, 0), (0, GROUP)), constant_values=-np.inf)
    row = np.arange(len(rows))
    columns = rng.integers(0, width + 5, (len(row), 60))
    np.testing.assert_array_equal(load_at(stats.rows, row, columns).numpy(), cut[row[:, None], columns])
    last = (width - 1) // GROUP
    group = np.full(len(row), last)
    members = load_groups(stats.rows, row, group).numpy()
    np.testing.assert_array_equal(members, cut[:, last * GROUP :][:, : members.shape[1]])
    for one in row:
        np.testing.assert_array_equal(load(stats.rows, row[one : one + 1], 0, width).numpy()[0], cut[one, :width])


def test_a_row_is_cut_the_same_alone_and_in_any_batch() -> None:
    rng = np.random.default_rng(9)
    for width in (300, 6000):
        rows = [torch.from_numpy(flat(rng, width)).bfloat16()[None] for _ in FILTERS]
        requests = [Request(x, (), SamplingParams(**given)) for x, given in zip(rows, FILTERS, strict=True)]
        together = filtered(requests)
        cut, totals = whole(together), together.totals(np.arange(len(rows)))
        for i in rng.permutation(len(rows)):
            alone = filtered([requests[i]])
            np.testing.assert_array_equal(whole(alone)[0], cut[i])
            assert alone.totals(np.array([0])).total[0] == totals.total[i]


def test_a_bad_row_is_bad_and_its_neighbours_are_not() -> None:
    rows = torch.randn(3, 5000, generator=torch.Generator().manual_seed(0))
    rows[1, 4999] = torch.nan
    params = SamplingParams(top_k=5, top_p=0.5)
    bad = filtered([Request(row[None], (), params) for row in rows]).totals(np.arange(3)).bad
    assert bad.tolist() == [False, True, False]


def drawn(row: Tensor, params: SamplingParams, count: int) -> list[int]:
    step = make_step([Request(row[None], (), params, seed=seed) for seed in range(count)])
    return [int(x) for x in verify(step, backend="cpu").token_ids]


@pytest.mark.parametrize("width", [40, 5000])
def test_nothing_behind_the_cut_is_ever_emitted(width: int) -> None:
    row = torch.from_numpy(equal(np.random.default_rng(width), width))
    for given in FILTERS:
        params = replace(SamplingParams(logprobs_modes=[]), **given)
        assert set(drawn(row, params, 200)) <= set(true_kept(row.numpy(), params))
