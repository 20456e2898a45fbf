"""Random steps over everything at once, held to the independent fp64 implementation: all methods, cuts, sums, reports."""

from __future__ import annotations

import json

import pytest

from sampler_client.stepfile.run import answer
from sampler_service.engine import Engine
from sampler_service.inprocess import InProcess
from tests.oracle.compare import check_against_oracle
from tests.oracle.generate import ALL, generate_step

SUPPLIED = frozenset(
    {"standard", "temperature", "draft_temperature", "vocabularies", "placeholders", "bad_rows", "chosen", "stop"}
    | {"logsumexp", "logprobs_modes", "max_tokens", "acceptance_probabilities"}
)
"""What goes with supplied log-sum-exps, so that they are no rarity."""

STEPS, REQUESTS = 50, 12
MOST_EXCUSED = 1e-3
"""Of the requests. The contract allows one of 10,000 decisions near its threshold, and a request makes fewer than
10; tiny quantised rows come nearer than a language model's."""


@pytest.mark.parametrize("features", [ALL, SUPPLIED], ids=["all", "supplied"])
@pytest.mark.parametrize("part", range(4))
def test_random_steps(part: int, features: frozenset[str]) -> None:
    verify = InProcess(Engine.of("cpu")).verify
    requests, excused = 0, 0
    for seed in range(part * STEPS, (part + 1) * STEPS):
        step = generate_step(seed, features, max_requests=REQUESTS)
        line, _ = answer(step, verify)
        product = json.loads(line)
        found = check_against_oracle(step, product)
        assert [str(one) for one in found if not one.excused] == [], f"step {seed}"
        requests += len(product["requests"])
        excused += len({one.request for one in found})
    assert requests > 5 * STEPS
    assert excused <= max(1, MOST_EXCUSED * requests)
