from __future__ import annotations

import numpy as np
import pytest

from tests.oracle.refusals import legal_step
from tests.oracle.request import Refusal
from tests.oracle.step_file import load_params, load_step, round_logits


def test_rounding_goes_through_fp32_first() -> None:
    """1 + 2**-8 + 2**-30 rounds to 1 + 2**-8 in fp32, a tie that bfloat16 breaks to even. Directly it goes up."""
    assert round_logits([[1 + 2**-8 + 2**-30]], "bfloat16")[0, 0] == 1.0


@pytest.mark.parametrize(
    ("dtype", "value", "rounded"),
    [
        ("float32", 0.1, float(np.float32(0.1))),
        ("float16", 0.1, float(np.float16(0.1))),
        ("bfloat16", 3.14159, 3.140625),
        ("float16", 70000.0, np.inf),
        ("float32", 1e39, np.inf),
    ],
)
def test_rounding(dtype: str, value: float, rounded: float) -> None:
    assert round_logits([[value]], dtype)[0, 0] == rounded


def test_draft_dtype_rounds_the_draft_alone() -> None:
    step = legal_step() | {"draft_dtype": "bfloat16"}
    step["requests"][0]["target_logits"][0][0] = 0.1
    step["requests"][0]["draft_logits"][0][0] = 0.1
    made = load_step(step)[0]
    assert made.draft_logits is not None
    assert made.target_logits[0, 0] == np.float32(0.1)
    assert made.draft_logits[0, 0] == np.float32(0.10009765625)


def test_non_finite_logits_are_strings() -> None:
    step = legal_step()
    step["requests"][0]["target_logits"][0][:3] = ["-inf", "inf", "nan"]
    row = load_step(step)[0].target_logits[0]
    assert row[0] == -np.inf
    assert row[1] == np.inf
    assert np.isnan(row[2])


def test_integers_may_be_decimal_strings() -> None:
    params = load_params({"seed": str(2**64 - 1), "position": "12", "logit_bias": {"3": 0.5}}, 0)
    assert (params.seed, params.position, params.logit_bias) == (2**64 - 1, 12, {3: 0.5})


@pytest.mark.parametrize("value", [1.5, True, "x", None])
def test_ids_are_integers(value: object) -> None:
    with pytest.raises(Refusal):
        load_params({"stop_token_ids": [value]}, 0)
