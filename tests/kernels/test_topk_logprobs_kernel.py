"""Logprobs of emitted tokens: the kernel against the reference."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from sampler_kernels.outcome import TopLogits
from sampler_kernels.stats.kernel import stats
from sampler_kernels.topk_logprobs import kernel, reference
from tests.kernels.kernel_cases import DEVICE, DTYPES, VOCABULARIES, moved, on_device, temperatures
from tests.kernels.steps import Request, make_batch


def check(target: torch.Tensor, emitted: torch.Tensor, top_n: int, *, ranks: bool = True, chosen: int = 3) -> None:
    """Kernel against reference, for rows of one request."""
    batch = make_batch([Request(target, [0] * (len(target) - 1))])
    here = on_device(batch)
    of_rows = stats(here.target, temperatures(batch)[0].to(DEVICE), raw=True)
    on_host = moved(of_rows, "cpu")
    ids = torch.randint(-1, target.shape[1], (len(target), chosen), generator=torch.Generator().manual_seed(0)).int()
    truth = reference.topk_logprobs(batch, on_host, emitted, raw=True, top_n=top_n, ranks=ranks, chosen_ids=ids)
    wish: dict[str, Any] = {"raw": True, "top_n": top_n, "ranks": ranks}
    mine = kernel.topk_logprobs(here, of_rows, emitted.to(DEVICE), chosen_ids=ids.to(DEVICE), **wish)
    told = emitted >= 0  # the other rows hold garbage
    for f in fields(TopLogits):
        numbers, expected = getattr(mine, f.name).cpu()[told], getattr(truth, f.name)[told]
        # Both take the difference in fp64 from sums that differ in the last digits of a float32.
        torch.testing.assert_close(numbers, expected, rtol=0, atol=2e-6, equal_nan=True, msg=f.name)


def rows(seed: int, vocab: int, dtype: torch.dtype) -> torch.Tensor:
    """Five rows: like a language model's, flat, few distinct values, mostly -inf, one group with all large entries."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((5, vocab), generator=generator) * torch.tensor([4.0, 1, 1, 4, 1])[:, None]
    x[2] = x[2].round()
    x[3] = torch.where(torch.rand(vocab, generator=generator) < 0.9, -torch.inf, x[3])
    x[3, 0] = 0
    x[4, :100] += 50
    return x.to(dtype)


def emitted_of(target: torch.Tensor, seed: int) -> torch.Tensor:
    """A token with mass for each row but the first."""
    drawn = torch.multinomial(target.float().softmax(1), 1, generator=torch.Generator().manual_seed(seed))[:, 0].int()
    drawn[0] = -1
    return drawn


@pytest.mark.parametrize("case", range(len(VOCABULARIES) * (3 if torch.cuda.is_available() else 1)))
def test_agrees_with_the_reference(case: int) -> None:
    vocab, dtype = VOCABULARIES[case % len(VOCABULARIES)], DTYPES[(case + case // len(VOCABULARIES)) % len(DTYPES)]
    target = rows(vocab, vocab, dtype)
    top_n = min(vocab, int(np.random.default_rng(vocab).choice([1, 3, 8, 20])))
    check(target, emitted_of(target, vocab), top_n)


@pytest.mark.parametrize("top_n", [0, 1, 8, 9, 32, 33, 129])
def test_any_number_of_entries(top_n: int) -> None:
    target = rows(top_n, 4200, torch.bfloat16)
    check(target, emitted_of(target, 1), top_n, ranks=top_n % 2 == 0, chosen=top_n % 40)


@pytest.mark.parametrize(("top_n", "dtype"), [(20, torch.float32), (20, torch.float16), (256, torch.bfloat16)])
def test_ties_are_ordered_by_id(top_n: int, dtype: torch.dtype) -> None:
    """More candidates than there are slots for, all or half of them equal, both zeros among them."""
    target = torch.zeros(3, 9000, dtype=dtype)
    target[1, ::2] = -0.0
    target[2, ::3] = 1
    check(target, torch.tensor([5, 8999, 0], dtype=torch.int32), top_n)
