"""Random steps over all that the kernels can do, held to the independent fp64 implementation."""

from __future__ import annotations

import json

import pytest
import torch

pytest.importorskip("triton")

from sampler_client.stepfile.run import answer
from sampler_service.engine import Engine
from sampler_service.inprocess import InProcess
from tests.oracle.compare import check_against_oracle
from tests.oracle.generate import ALL, generate_step

STEPS, REQUESTS = (50, 12) if torch.cuda.is_available() else (3, 5)
FEATURES = ALL - {"logsumexp"}
MOST_EXCUSED = 1e-3
"""Of the requests; see the same test of the CPU backend."""


@pytest.mark.parametrize("part", range(4))
def test_random_steps(part: int) -> None:
    verify = InProcess(Engine.of("triton")).verify
    requests, excused = 0, 0
    for seed in range(part * STEPS, (part + 1) * STEPS):
        step = generate_step(seed, FEATURES, max_requests=REQUESTS)
        line, _ = answer(step, verify)
        product = json.loads(line)
        found = check_against_oracle(step, product)
        assert [str(one) for one in found if not one.excused] == [], f"step {seed}"
        requests += len(product["requests"])
        excused += len({one.request for one in found})
    assert requests > 2 * STEPS
    assert excused <= max(1, MOST_EXCUSED * requests)
