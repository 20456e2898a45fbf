"""Uniforms in a kernel: bit for bit those of the reference."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from sampler_kernels.philox import kernel, reference
from sampler_kernels.philox.reference import Purpose
from tests.kernels.kernel_cases import DEVICE


@pytest.mark.parametrize("purpose", list(Purpose))
def test_every_bit_agrees_with_the_reference(purpose: Purpose) -> None:
    generator = torch.Generator().manual_seed(3)
    edges = torch.tensor([0, 1, -1, 2**32 - 1, 2**32, 2**63 - 1, -(2**63)])
    seed, position = torch.cartesian_prod(edges, edges).unbind(1)
    seed = torch.cat([seed, torch.randint(-(2**63), 2**63 - 1, (251,), generator=generator)])
    position = torch.cat([position, torch.randint(-(2**63), 2**63 - 1, (251,), generator=generator)])
    s = torch.randint(0, 129, seed.shape, generator=generator)
    mine = kernel.uniform(seed.to(DEVICE), position.to(DEVICE), purpose, s.to(DEVICE))
    truth = reference.uniform(seed.numpy(), position.numpy(), purpose, s.numpy())
    assert torch.equal(mine.cpu(), torch.from_numpy(truth))
