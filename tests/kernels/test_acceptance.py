"""Acceptance probabilities: min(1, p/q) up to and including the first draft token that did not stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
import torch

from sampler_kernels import Method, SamplingParams
from tests.kernels.asking import Ask, answers
from tests.kernels.steps import true_uniform

P, Q = (0.5, 0.3, 0.2), (0.2, 0.7, 0.1)
ASKS = SamplingParams(acceptance_probabilities=True, logprobs_modes=())


def reported(*asks: Ask) -> list[list[float]]:
    result = answers(asks, "cpu")
    assert result.acceptance_probabilities is not None
    assert result.cu_acceptance is not None
    return [part.tolist() for part in np.split(result.acceptance_probabilities, result.cu_acceptance[1:-1])]


def request(ids: Sequence[int], seed: int = 0, **wishes: object) -> Ask:
    target = torch.tensor([P] * (len(ids) + 1), dtype=torch.float64).log().float()
    draft = torch.tensor([Q] * len(ids), dtype=torch.float64).log().float()
    params = replace(ASKS, **wishes)  # type: ignore[arg-type]
    return Ask(target=target, ids=ids, draft=draft if ids else None, params=params, seed=seed)


@pytest.mark.parametrize("method", [Method.STANDARD, Method.BLOCK])
def test_against_the_formula(method: Method) -> None:
    for seed in range(100):
        ids = [int(3 * true_uniform(seed, 0, 2, j)) for j in range(4)]
        ask = request(ids, seed, method=method)
        t = int(answers([ask], "cpu").num_accepted[0])
        want = [min(1, P[x] / Q[x]) for x in ids[: t + 1]]
        assert reported(ask) == [pytest.approx(want, abs=1e-6)]


def test_zeros() -> None:
    """0 where p is, whatever q is, and else 1 where q is."""
    target = torch.tensor([[0.0, -inf], [0.0, 0.0]])
    draft = torch.tensor([[-inf, 0.0]])
    none = torch.tensor([[0.0, -inf]])
    asks = [
        Ask(target=target, ids=[x], draft=q, params=ASKS) for x, q in ((0, draft), (1, draft), (1, none), (0, none))
    ]
    assert reported(*asks) == [[1.0], [0.0], [0.0], [1.0]]


def test_only_where_tokens_are_drawn_and_emitted() -> None:
    sure = replace(request([0, 0, 0]), draft=None)
    target = torch.tensor([[0.0, -inf, -inf]]).repeat(4, 1)
    sure = replace(sure, target=target)
    assert reported(
        sure,
        replace(sure, ids=[0, -1, 0]),
        replace(sure, ids=[-1, 0, 0]),
        replace(sure, params=replace(ASKS, max_tokens=2)),
        replace(sure, params=replace(ASKS, stop_token_ids=[0])),
        replace(sure, params=SamplingParams()),
        replace(sure, target=target[:1], ids=[]),
        replace(sure, target=torch.full_like(target, nan)),
        replace(sure, ids=[0, 1, 0]),
    ) == [[1.0] * 3, [1.0], [], [1.0] * 2, [1.0], [], [], [], [1.0, 0.0]]


def test_other_methods_take_the_draft_for_a_point_mass() -> None:
    for wishes in (
        {"method": Method.STRICT},
        {"method": Method.TYPICAL},
        {"method": Method.SYNTHETIC, "synthetic_rates": [0.0]},
        {"method": Method.RELAXED, "relaxed_top_n": 3, "relaxed_margin": 9.0, "temperature": 0},
    ):
        assert reported(request([1], **wishes)) == [[pytest.approx(0.3, abs=1e-6)]]
    # In greedy p is one too.
    assert reported(request([0, 1], temperature=0)) == [[1.0, 0.0]]


def test_nothing_where_nobody_asks() -> None:
    result = answers([Ask(target=torch.zeros(2, 3), ids=[1])], "cpu")
    assert result.acceptance_probabilities is None
    assert result.cu_acceptance is None
