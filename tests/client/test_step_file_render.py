"""One line of JSON for each step, in the form that the contract gives."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from sampler_client import InvalidStep, LogprobsMode, SamplingParams, Step
from sampler_client.codec.response import decode_result
from sampler_client.stepfile import render_error, render_result
from sampler_client.v1 import sampler_pb2 as pb
from tests.client.steps import step
from tests.client.test_response import MESSAGE

RAW, LOGITS = LogprobsMode.RAW_LOGPROBS, LogprobsMode.RAW_LOGITS
ASKED = [
    SamplingParams(logprobs_modes=[LOGITS, RAW], acceptance_probabilities=True),
    SamplingParams(),
    SamplingParams(logprobs_modes=[LOGITS], ranks=False),
]
STEP = step([1, 1, 0], params=ASKED)


def rendered(what: Step = STEP, message: pb.StepResult = MESSAGE) -> list[dict[str, Any]]:
    line = render_result(what, decode_result(message))
    assert "\n" not in line
    return json.loads(line, parse_constant=pytest.fail)["requests"]  # type: ignore[no-any-return]


def test_request_that_emitted() -> None:
    assert rendered()[0] == {
        "status": "OK",
        "token_ids": [7, 8],
        "num_accepted": 1,
        "seed": "18446744073709551615",
        "finish_reason": "stop",
        "lossy": False,
        "bad_row": None,
        "logprobs": {
            "raw_logprobs": {
                "tokens": [-0.5, -1.5],
                "ranks": [1, 2],
                "cumulative": -2.0,
                "top": [
                    [{"token_id": 7, "value": -0.5}, {"token_id": 4, "value": -2.0}],
                    [{"token_id": 5, "value": -0.25}],
                ],
                "chosen": [[{"token_id": 6, "value": -3.0}], [{"token_id": 6, "value": "-inf"}]],
            },
            "raw_logits": {
                "tokens": [1.0, 2.0],
                "ranks": None,
                "cumulative": None,
                "top": [[], []],
                "chosen": [[], []],
            },
        },
        "acceptance_probabilities": [1.0, 0.25],
    }


def test_request_with_a_bad_row_reports_nothing_in_the_modes_it_asked_for() -> None:
    assert rendered()[1] == {
        "status": "INVALID_LOGITS",
        "token_ids": [],
        "num_accepted": 0,
        "seed": 0,
        "finish_reason": None,
        "lossy": False,
        "bad_row": 2,
        "logprobs": {"raw_logprobs": {"tokens": [], "ranks": [], "cumulative": None, "top": [], "chosen": []}},
    }


def test_request_that_asked_for_less() -> None:
    last = rendered()[2]
    assert (last["finish_reason"], last["lossy"]) == ("length", True)
    assert list(last["logprobs"]) == ["raw_logits"]
    assert last["logprobs"]["raw_logits"]["ranks"] is None
    assert "acceptance_probabilities" not in last


@pytest.mark.parametrize(
    ("seed", "printed"), [(0, 0), (2**53 - 1, 2**53 - 1), (2**53, "9007199254740992"), (2**64 - 1, str(2**64 - 1))]
)
def test_seeds_that_a_double_cannot_hold_are_strings(seed: int, printed: int | str) -> None:
    message = pb.StepResult()
    message.CopyFrom(MESSAGE)
    message.seed[2] = seed
    assert rendered(message=message)[2]["seed"] == printed


def test_float32_values_print_with_the_digits_they_have() -> None:
    message = pb.StepResult()
    message.CopyFrom(MESSAGE)
    del message.logprobs[1].values[:]
    message.logprobs[1].values.extend([0.1, float("inf"), 1e-30])
    lines = rendered(message=message)
    assert lines[0]["logprobs"]["raw_logits"]["tokens"] == [0.1, "inf"]
    assert lines[2]["logprobs"]["raw_logits"]["tokens"] == [1e-30]
    assert np.float32(lines[2]["logprobs"]["raw_logits"]["tokens"][0]) == np.float32(1e-30)


def test_error() -> None:
    error = InvalidStep("SHAPE_MISMATCH: no", code="INVALID_ARGUMENT", reason="SHAPE_MISMATCH")
    assert json.loads(render_error(error)) == {
        "error": {"code": "INVALID_ARGUMENT", "reason": "SHAPE_MISMATCH", "message": "SHAPE_MISMATCH: no"}
    }
