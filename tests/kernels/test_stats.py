"""Row statistics against fp64 numpy, at tile and group edges, and independent of everything but the row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from sampler_kernels.layout import GROUP, TILE, num_groups, num_tiles
from sampler_kernels.outcome import RowStats
from sampler_kernels.rows import LOGIT_DTYPES, RowTable
from sampler_kernels.stats.reference import LazyRowStats, combine, stats

WIDTHS = [1, 3, 127, 128, 129, 4095, 4096, 4097, 8193, 151_936]
FIELDS = ("tile_max", "tile_sum", "tile_raw_sum", "tile_argmax", "group_max")


def one_block(block: Tensor) -> RowTable:
    return RowTable((block,), np.zeros(len(block), np.int32), np.arange(len(block)))


def temperatures(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def assert_equal(a: RowStats, b: RowStats) -> None:
    """Bit for bit, NaN included."""
    for name in FIELDS:
        x, y = getattr(a, name), getattr(b, name)
        assert x.numpy().tobytes() == y.numpy().tobytes(), name


def rows_of(width: int, dtype: torch.dtype, n: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(width)
    x = torch.randn((n, width), generator=generator) * 4
    x[-1] = x[-1].round()  # many ties
    return x.to(dtype)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", LOGIT_DTYPES)
def test_against_fp64(width: int, dtype: torch.dtype) -> None:
    x, temperature = rows_of(width, dtype), temperatures(0.7, 0.0, 2.5)
    got = stats(one_block(x), temperature, raw=True)
    assert got.tile_raw_sum is not None
    assert got.tile_max.shape == (3, num_tiles(width))
    assert got.group_max.shape == (3, num_groups(width))
    rows = x.double().numpy()
    for r, t in enumerate([0.7, 1.0, 2.5]):
        for tile in range(num_tiles(width)):
            part = rows[r, tile * TILE : (tile + 1) * TILE]
            assert got.tile_max[r, tile] == part.max()
            assert got.tile_argmax[r, tile] == tile * TILE + part.argmax()
            # float32 elements, a fast exp and a pairwise sum: 2^-24 each for the quotient (times its size, which is
            # below 40 here where it weighs), the exp and the sum.
            assert got.tile_sum[r, tile] == pytest.approx(np.exp((part - part.max()) / t).sum(), rel=2e-6)
            assert got.tile_raw_sum[r, tile] == pytest.approx(np.exp(part - part.max()).sum(), rel=2e-6)
        groups = [rows[r, g * GROUP : (g + 1) * GROUP].max() for g in range(num_groups(width))]
        assert got.group_max[r].tolist() == groups


def test_low_temperature_loses_nothing() -> None:
    """(x - max) / T, not x / T - max / T: at 1e-5 the second form is off by whole units."""
    x = torch.tensor([[20.0, 20.0 - 2e-5, 19.0]])
    got = stats(one_block(x), temperatures(1e-5), raw=False)
    exact = x.double().numpy()
    want = np.exp((exact - exact.max()) / 1e-5).sum()
    assert float(got.tile_sum[0, 0]) == pytest.approx(want, rel=1e-6)


def test_temperature_beyond_float32_is_uniform_over_what_is_left() -> None:
    x = torch.tensor([[0.0, 5.0, -float("inf"), 3e38]])
    got = stats(one_block(x), temperatures(1e300), raw=False)
    assert float(got.tile_sum[0, 0]) == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("width", WIDTHS[:-1])
def test_a_row_alone_and_in_company(width: int) -> None:
    """Bit-equal whichever rows are computed together, and in whichever memory they lie."""
    n = 70 if width < 1000 else 40
    x = rows_of(width, torch.bfloat16, n)
    temperature = torch.linspace(0.3, 2.0, n, dtype=torch.float64)
    together = stats(one_block(x), temperature, raw=True)
    odd = torch.empty(n * (width + 77) + 1, dtype=x.dtype)[1:].as_strided((n, width), (width + 77, 1))
    odd.copy_(x)
    assert_equal(together, stats(one_block(odd), temperature, raw=True))
    lazy = LazyRowStats(one_block(x), temperature, raw=True)
    for r in np.random.default_rng(0).permutation(n):
        lazy.take(np.array([r]))
    assert_equal(together, lazy.take(np.arange(n)))
    single = stats(one_block(x[7:8]), temperature[7:8], raw=True)
    assert_equal(single, lazy.take(np.array([7])))


@pytest.mark.parametrize("width", [16, 129, 4097, 151_936])
def test_thread_counts(width: int) -> None:
    """Bit-equal for any number of threads, also where their shares do not end on whole vectors."""
    x = rows_of(width, torch.float32, 9 if width > 200 else 20_000)
    temperature = torch.full((len(x),), 0.7, dtype=torch.float64)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        want = stats(one_block(x), temperature, raw=True)
        for threads in (2, 3, 5, 7):
            torch.set_num_threads(threads)
            assert_equal(want, stats(one_block(x), temperature, raw=True))
    finally:
        torch.set_num_threads(before)


def test_rows_of_several_widths() -> None:
    """Past a narrower row's end there is nothing; its numbers are those of a table of its own."""
    narrow, wide = rows_of(130, torch.float16), rows_of(5000, torch.float16)
    table = RowTable((narrow, wide), np.array([1, 0, 1], np.int32), np.array([2, 1, 0]))
    temperature = temperatures(0.5, 1.0, 1.5)
    got = stats(table, temperature, raw=True)
    alone = stats(one_block(narrow[1:2]), temperature[1:2], raw=True)
    assert torch.equal(got.tile_sum[1], torch.cat([alone.tile_sum[0], torch.zeros(1)]))
    assert torch.equal(got.group_max[1, :2], alone.group_max[0])
    assert got.group_max[1, 2:].eq(-torch.inf).all()
    assert got.tile_max[1, 1] == -torch.inf
    assert_equal(
        stats(one_block(wide[:1]), temperature[2:], raw=True),
        LazyRowStats(table, temperature, raw=True).take(np.array([2])),
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_bad_elements_poison_their_row_alone(value: float) -> None:
    x = rows_of(9000, torch.float32)
    clean = stats(one_block(x), temperatures(1, 1, 1), raw=True)
    x[1, 8999] = value
    x[2, :] = -torch.inf
    got = stats(one_block(x), temperatures(1, 1, 1), raw=True)
    assert got.tile_max[1].isnan().tolist() == [False, False, True]
    totals = combine(got.tile_max.numpy(), got.tile_sum.numpy(), np.ones(3))
    assert totals.bad.tolist() == [False, True, True]
    for name in FIELDS:
        assert torch.equal(getattr(got, name)[0], getattr(clean, name)[0])


def test_tiles_without_mass() -> None:
    """-inf throughout the last tile, and a tile far below the maximum: nothing there, nothing NaN."""
    x = torch.full((1, 3 * TILE), -torch.inf)
    x[0, 5], x[0, TILE + 1] = 0.0, -1000.0
    got = stats(one_block(x), temperatures(1), raw=False)
    totals = combine(got.tile_max.numpy(), got.tile_sum.numpy(), np.ones(1))
    assert totals.total.tolist() == [1.0]
    assert totals.tile_masses.tolist() == [[1.0, 0.0, 0.0]]
    assert not totals.bad[0]


def test_lazy_computes_only_what_is_asked() -> None:
    """A row that nothing depends on is not read: written after the statistics were made, it counts as written."""
    x = rows_of(5000, torch.float32)
    lazy = LazyRowStats(one_block(x), temperatures(1, 1, 1), raw=True)
    assert not lazy.totals(np.array([0, 2])).bad.any()
    x[0], x[1] = torch.nan, torch.nan
    assert lazy.totals(np.array([0, 1, 2])).bad.tolist() == [False, True, False]


def test_table_without_rows() -> None:
    empty = RowTable((), np.zeros(0, np.int32), np.zeros(0, np.int64))
    got = stats(empty, torch.zeros(0, dtype=torch.float64), raw=False)
    assert len(got.tile_max) == 0


def test_beyond_two_to_the_31_elements() -> None:
    """Row index times stride passes 2^31 over pages that are never touched; the last row is as alone."""
    width, stride = 4100, (1 << 30) + 17
    memory = torch.empty(3 * stride, dtype=torch.float16)
    block = memory.as_strided((3, width), (stride, 1))
    row = rows_of(width, torch.float16)[0]
    block[2] = row
    got = LazyRowStats(one_block(block), temperatures(1, 1, 0.7), raw=True).take(np.array([2]))
    assert_equal(got, stats(one_block(row[None]), temperatures(0.7), raw=True))
