from __future__ import annotations

import math

import pytest

from tests.oracle.builders import request, rows
from tests.oracle.refusals import BAD_STEPS, NON_FINITE_PARAMS, illegal_steps, legal_step
from tests.oracle.request import Json, Refusal
from tests.oracle.step import run_step


def test_the_unbroken_step_is_legal() -> None:
    assert [r["status"] for r in run_step(legal_step()).result["requests"]] == ["OK", "OK"]


@pytest.mark.parametrize(("name", "step"), list(illegal_steps()), ids=[name for name, _ in illegal_steps()])
def test_every_breach_is_refused(name: str, step: dict[str, Json]) -> None:
    refusal = run_step(step).refusal
    assert refusal is not None, name
    assert refusal.request == 1 or name in BAD_STEPS


@pytest.mark.parametrize("name", NON_FINITE_PARAMS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_params_are_refused(name: str, value: float) -> None:
    params: dict[str, Json] = {name: value}
    with pytest.raises(Refusal):
        request(rows([0.0, 1.0]), **params)


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1e-5},
        {"draft_temperature": 0.0},
        {"top_p": 1.0, "min_p": 1.0, "top_k": 100},
        {"position": str(2**64 - 3), "seed": str(2**64 - 1)},
        {"top_logprobs": 256},
        {"typical_epsilon": 1.0, "typical_delta": 1e-9},
        {"method": "synthetic", "synthetic_rates": [0.0, 1.0, 0.3]},
        {"method": "relaxed", "relaxed_top_n": 1, "relaxed_margin": 0.0},
        {"prompt_token_ids": [-5, 6, 2**31 - 1], "output_token_ids": [-1], "repetition_penalty": 1.5},
        {"logprobs_modes": []},
        {"frequency_penalty": -2.0, "presence_penalty": -3.0},
    ],
)
def test_the_edges_are_legal(params: dict[str, Json]) -> None:
    step = legal_step()
    step["requests"][1]["params"] |= params
    assert run_step(step).refusal is None
