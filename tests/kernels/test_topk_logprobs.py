"""Logprobs, ranks, largest entries and listed ids against fp64 numpy and a full stable sort."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from sampler_kernels.rows import LOGIT_DTYPES
from sampler_kernels.topk_logprobs.reference import topk_logprobs
from tests.kernels.steps import Request, lazy_stats, make_batch

INF = float("inf")
WIDTHS = [1, 3, 127, 128, 129, 4095, 4096, 4097, 8193, 151_936]


@dataclass(eq=False)
class Report:
    """Raw logprobs, made of what the operation returns."""

    values: Tensor
    ranks: Tensor
    top_ids: Tensor
    top_values: Tensor
    chosen_values: Tensor


def report(
    rows: Tensor,
    emitted: list[int],
    *,
    top_n: int,
    temperature: float = 1.0,
    ranks: bool = True,
    chosen: Tensor | None = None,
) -> Report:
    """Of rows taken as the bonus rows of as many requests."""
    batch = make_batch([Request(rows[i : i + 1], temperature=temperature) for i in range(len(rows))])
    target, _ = lazy_stats(batch)
    got = topk_logprobs(
        batch, target, torch.tensor(emitted, dtype=torch.int32), raw=True, top_n=top_n, ranks=ranks, chosen_ids=chosen
    )
    lines = got.log_sum_exp[:, None]
    values, top, chosen_values = got.logits - got.log_sum_exp, got.top_logits - lines, got.chosen_logits - lines
    return Report(values, got.ranks, got.top_ids, top, chosen_values)


def truth(row: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Logprobs in fp64, and ids in the order (value descending, id ascending)."""
    x = row.double().numpy()
    log_sum_exp = x.max() + np.log(np.exp(x - x.max()).sum())
    return x - log_sum_exp, np.argsort(-x, kind="stable")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", LOGIT_DTYPES)
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_against_fp64(width: int, dtype: torch.dtype, temperature: float) -> None:
    generator = torch.Generator().manual_seed(width)
    rows = (torch.randn((3, width), generator=generator) * 4).to(dtype)
    emitted = [0, width - 1, width // 2]
    chosen = torch.tensor([[width - 1, 0], [-1, width // 3], [0, -1]], dtype=torch.int32)
    for top_n in (1, 20, 256):
        got = report(rows, emitted, top_n=top_n, temperature=temperature, chosen=chosen)
        for i, row in enumerate(rows):
            logprobs, order = truth(row)
            n = min(top_n, width)
            assert float(got.values[i]) == pytest.approx(logprobs[emitted[i]], abs=1e-5)
            assert int(got.ranks[i]) == (row >= row[emitted[i]]).sum()
            assert got.top_ids[i].tolist() == [*order[:n], *[-1] * (top_n - n)]
            assert got.top_values[i, :n].numpy() == pytest.approx(logprobs[order[:n]], abs=1e-5)
            for c, x in enumerate(chosen[i].tolist()):
                value = float(got.chosen_values[i, c])
                assert math.isnan(value) if x < 0 else value == pytest.approx(logprobs[x], abs=1e-5)


@pytest.mark.parametrize("width", [5, 300, 5000])
def test_ties_go_to_the_lowest_id(width: int) -> None:
    """Few distinct values, the two zeros among them, so that every boundary is a tie."""
    rng = np.random.default_rng(width)
    rows = torch.from_numpy(rng.choice(np.array([-1.0, -0.0, 0.0, 2.0], np.float32), (6, width)))
    rows[5] = 1.5
    for top_n in (1, 7, 50, 256):
        got = report(rows, [0] * 6, top_n=top_n)
        for i, row in enumerate(rows):
            order = np.argsort(-row.numpy(), kind="stable")[:top_n]
            assert got.top_ids[i, : len(order)].tolist() == order.tolist()
            assert int(got.ranks[i]) == (row >= row[0]).sum()


def test_entries_of_no_mass_are_left_out() -> None:
    rows = torch.full((2, 600), -INF)
    rows[0, [3, 599]] = torch.tensor([1.0, 2.0])
    rows[1, 7] = 0.0
    chosen = torch.tensor([[3, 4], [7, 8]], dtype=torch.int32)
    got = report(rows, [599, 7], top_n=4, chosen=chosen)
    assert got.top_ids.tolist() == [[599, 3, -1, -1], [7, -1, -1, -1]]
    assert got.chosen_values[0, 1] == -INF
    assert got.chosen_values[1].tolist() == [0.0, -INF]
    assert got.ranks.tolist() == [1, 1]


def test_rank_of_a_token_without_mass_is_the_last() -> None:
    """Every entry is >= -inf, and columns past the row's end are no entries."""
    rows = torch.full((1, 130), -INF)
    rows[0, 0] = 0.0
    got = report(rows, [129], top_n=1)
    assert got.ranks.tolist() == [130]
    assert got.values.tolist() == [-INF]


def test_only_rows_with_a_token_are_read() -> None:
    rows = torch.randn((3, 500), generator=torch.Generator().manual_seed(0))
    rows[1] = torch.nan
    got = report(rows, [1, -1, 2], top_n=3)
    clean = report(rows[[0, 2]], [1, 2], top_n=3)
    assert torch.equal(got.values[[0, 2]], clean.values)
    assert torch.equal(got.top_ids[[0, 2]], clean.top_ids)
    assert got.top_ids[1].tolist() == [-1, -1, -1]


def test_nothing_asked() -> None:
    rows = torch.zeros((1, 10))
    got = report(rows, [4], top_n=0, ranks=False)
    assert got.top_ids.shape == (1, 0)
    assert got.chosen_values.shape == (1, 0)
    assert got.ranks.tolist() == [0]
    assert float(got.values[0]) == pytest.approx(-math.log(10))
