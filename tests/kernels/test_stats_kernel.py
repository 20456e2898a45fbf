"""Row statistics: the kernel against the reference, and against itself where only the place of a row differs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from torch import Tensor

from sampler_kernels.outcome import RowStats
from sampler_kernels.rows import RowTable
from sampler_kernels.stats import reference
from sampler_kernels.stats.kernel import stats, stats_of_both
from tests.kernels.kernel_cases import DEVICE, DTYPES, SEEDS, batches, on_device, temperatures

FIELDS = ("tile_max", "tile_sum", "tile_raw_sum", "tile_argmax", "group_max")


def compare(mine: RowStats, truth: RowStats) -> None:
    assert torch.equal(mine.tile_max.isnan().cpu(), truth.tile_max.isnan())
    # Nothing else is said of a tile that holds NaN or +inf, nor an argmax of one that holds nothing.
    filled = truth.tile_max > -torch.inf
    for name in FIELDS[:-1]:
        numbers, expected = getattr(mine, name), getattr(truth, name)
        if expected is not None:
            # Sums of 4,096 float32: a hundredth of what the contract leaves for a decision.
            torch.testing.assert_close(numbers.cpu()[filled], expected[filled], rtol=2e-6, atol=0)
    whole = ~truth.tile_max.isnan().any(1)
    assert torch.equal(mine.group_max.cpu()[whole], truth.group_max[whole])


@pytest.mark.parametrize("seed", SEEDS)
def test_both_tables_agree_with_the_reference(seed: int) -> None:
    raw = seed % 2 == 0
    for batch in batches(seed, requests=2):
        of_target, of_draft = temperatures(batch)
        here = on_device(batch)
        target, draft = stats_of_both(here.target, of_target.to(DEVICE), here.draft, of_draft.to(DEVICE), raw=raw)
        compare(target, reference.stats(batch.target, of_target, raw=raw))
        if len(batch.draft):
            compare(draft, reference.stats(batch.draft, of_draft, raw=False))


def test_one_table_alone_agrees_too() -> None:
    batch = next(batches(2))
    of_target, _ = temperatures(batch)
    compare(
        stats(on_device(batch).target, of_target.to(DEVICE), raw=True),
        reference.stats(batch.target, of_target, raw=True),
    )


def table(*rows: Tensor) -> RowTable:
    count = len(rows)
    return RowTable(tuple(row[None] for row in rows), np.arange(count, dtype=np.int32), np.zeros(count, np.int64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [4096, 8200, 8201])
def test_a_row_has_the_same_bits_wherever_it_lies(dtype: torch.dtype, width: int) -> None:
    row = torch.randn(width, generator=torch.Generator().manual_seed(width)).mul_(5).to(dtype)
    room = torch.zeros(width + 16, dtype=dtype, device=DEVICE)
    places = []
    for offset in (0, 1, 3):  # 16-byte aligned, and not
        places.append(room.clone()[offset : offset + width])
        places[-1].copy_(row)
    wide = torch.zeros(3 * 4096, dtype=dtype, device=DEVICE)  # a wider neighbour makes the table wider
    temperature = torch.full((4,), 0.7, dtype=torch.float64, device=DEVICE)
    mine = stats(table(*places, wide), temperature, raw=True)
    for name in FIELDS:
        numbers = getattr(mine, name)[:3]
        assert torch.equal(numbers, numbers[:1].expand_as(numbers)), name


@pytest.mark.parametrize("temperature", [1e38, 1e40, 1e44, 1e45, 1e300])
def test_temperatures_beyond_float32(temperature: float) -> None:
    row = torch.tensor([0.0, 5.0, -float("inf"), 3e38], device=DEVICE)
    mine = stats(table(row), torch.full((1,), temperature, dtype=torch.float64, device=DEVICE), raw=False)
    assert float(mine.tile_sum[0, 0]) == pytest.approx(1 + 2 * np.exp(-3e38 / temperature), rel=1e-6)


def test_rows_far_apart_are_addressed_in_64_bits() -> None:
    width, stride = 8, 2**30 + 64
    room = torch.empty(2 * stride + width, dtype=torch.float16, device=DEVICE)  # pages that nothing touches
    rows = room.as_strided((3, width), (stride, 1))
    rows.copy_(torch.arange(3.0)[:, None] + torch.arange(width))
    mine = stats(
        RowTable((rows,), np.zeros(3, np.int32), np.arange(3)),
        torch.ones(3, dtype=torch.float64, device=DEVICE),
        raw=True,
    )
    assert mine.tile_max[:, 0].tolist() == [7, 8, 9]
