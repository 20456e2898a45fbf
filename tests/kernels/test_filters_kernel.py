"""Cuts in kernels against a full stable sort in fp64: what is kept, and its mass, tile by tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from sampler_kernels import SamplingParams
from sampler_kernels.checks.shapes import host_columns
from sampler_kernels.planning.plan import plan
from sampler_kernels.processors.kernel import processors
from sampler_kernels.rows import LOGIT_DTYPES
from sampler_kernels.stats.kernel import stats
from tests.kernels.kernel_cases import DEVICE
from tests.kernels.processing import Request, make_step, true_kept, true_row
from tests.kernels.test_filters import FILTERS, MASS_TOLERANCE, equal, flat, peaked, sparse

WIDTHS = [1, 2, 5, 127, 129, 1000, 4097, 9000]
EVERY = 1 if torch.cuda.is_available() else 3
"""Under the interpreter one case in so many."""


def check(requests: Sequence[Request]) -> None:
    """What is kept, its place, its mass."""
    step = make_step(requests)
    step = replace(step, target_logits=step.target_logits.to(DEVICE))
    planned = plan(step, host_columns(step), DEVICE)
    table = processors(planned.batch)
    found = stats(table, planned.target_temperature, raw=True)
    assert table.processing is not None
    assert table.processing.filters is not None
    values, last = table.processing.filters.cut_value.cpu().numpy(), table.processing.filters.cut_id.cpu().numpy()
    tile_max, tile_sum = found.tile_max.cpu().double().numpy(), found.tile_sum.cpu().double().numpy()
    for row, request in enumerate(requests):
        x, ids = true_row(request, 0), np.arange(request.target.shape[1])
        mine = np.flatnonzero((x > -np.inf) & ((x > values[row]) | ((x == values[row]) & (ids <= last[row]))))
        most, least = (true_kept(x, request.params, shift) for shift in (MASS_TOLERANCE, -MASS_TOLERANCE))
        assert len(least) <= len(mine) <= len(most), request.params
        kept = most[: len(mine)]
        assert mine.tolist() == sorted(kept), request.params
        mass = np.zeros(len(x))
        mass[kept] = np.exp((x[kept].astype(np.float64) - x.max()) / request.params.temperature)
        by_tile = np.add.reduceat(mass, np.arange(0, len(x), 4096))
        with np.errstate(invalid="ignore"):
            relative = np.exp((tile_max[row] - x.max()) / request.params.temperature)
        masses = np.where(tile_sum[row] > 0, tile_sum[row] * relative, 0)
        np.testing.assert_allclose(masses, by_tile, atol=MASS_TOLERANCE * mass.sum())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", [peaked, flat, equal, sparse])
def test_what_is_kept_and_its_mass(width: int, kind: Any) -> None:  # noqa: ANN401
    rng = np.random.default_rng(width)
    for number, dtype in enumerate(LOGIT_DTYPES):
        some = FILTERS[(width + number) % EVERY :: EVERY]
        rows = [torch.from_numpy(kind(rng, width))[None].to(dtype) for _ in some]
        check([Request(row, (), SamplingParams(**given)) for row, given in zip(rows, some, strict=True)])


def test_edited_and_masked_rows_are_cut_as_they_are() -> None:
    rng = np.random.default_rng(1)
    biases = {int(i): float(rng.normal()) * 3 for i in rng.integers(0, 5000, 30)}
    for dtype in LOGIT_DTYPES:
        requests = [
            Request(
                torch.from_numpy(peaked(rng, 5000))[None].to(dtype),
                (),
                SamplingParams(logit_bias=biases, repetition_penalty=1.2, **given),
                output=[int(x) for x in rng.integers(0, 5000, 20)],
                bitmask=[sorted({int(x) for x in rng.integers(0, 5000, 2000)})] if number % 2 else None,
            )
            for number, given in enumerate(FILTERS[::EVERY])
        ]
        check(requests)
