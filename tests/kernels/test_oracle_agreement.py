"""Random steps against the oracle: an independent fp64 reading of the contract, which shares no code with the product.

A difference is excused only where one of the oracle's own decisions that it hangs on lies within rounding of its
threshold: 1e-6, and 1e-5 where logits are fp32. The contract allows backends at most one such in 10,000 decisions.
"""

from __future__ import annotations

import pytest

from sampler_kernels import verify
from tests.backends import BACKENDS
from tests.kernels.oracle_steps import to_json, to_step
from tests.oracle.compare import Difference, compare_step, excuse_threshold
from tests.oracle.generate import ALL, FIRST_CUT, generate_step
from tests.oracle.step import run_step

BUILT = {"cpu": ALL, "triton": FIRST_CUT}
"""Features of the generator that each backend has."""
STEPS, BATCH, PARTS = 300, 48, 2
"""Steps in each part, and requests of a step at most."""


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("part", range(PARTS))
def test_mixed_batches(backend: str, part: int) -> None:
    requests = decisions = 0
    found: list[Difference] = []
    excused: set[tuple[int, int | None, str]] = set()
    for seed in range(part * STEPS, (part + 1) * STEPS):
        given = generate_step(seed, BUILT[backend], max_requests=BATCH)
        step = to_step(given)
        result = verify(step, backend=backend)
        oracle = run_step(given, result.seeds.tolist())
        differences = compare_step(to_json(step, result), oracle, excuse_threshold(given))
        found += [one for one in differences if not one.excused]
        # A request's tokens, counts and numbers may all differ by one decision; they are one.
        excused |= {(seed, one.request, one.decision) for one in differences if one.excused}
        requests += len(oracle.outcomes)
        decisions += sum(len(outcome.margins.recorded) for outcome in oracle.outcomes)
    assert [str(one) for one in found] == []
    assert requests > 5000
    assert decisions > 10_000, "the bound below has something to count"
    assert len(excused) <= decisions / 10_000
