"""The comparison sees every kind of difference, and excuses only what a margin covers."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from tests.oracle.compare import check_against_oracle, compare_step, excuse_threshold
from tests.oracle.request import Json
from tests.oracle.step import StepOutcome, run_step

STEP: dict[str, Json] = {
    "vocab_size": 4,
    "dtype": "float32",
    "requests": [
        {
            "target_logits": [[0.0, 3.0, 1.0, 0.5], [0.0, 1.0, 3.0, 0.5]],
            "draft_token_ids": [1],
            "params": {
                "temperature": 0.0, "seed": 9, "top_logprobs": 2, "logprob_token_ids": [3],
                "logprobs_modes": ["raw_logprobs", "processed_logits"],
            },
        }
    ],
}  # fmt: skip


def differences(change: Callable[[dict[str, Json]], None]) -> list[str]:
    oracle = run_step(STEP)
    product = copy.deepcopy(oracle.result)
    change(product["requests"][0])
    found = compare_step(product, oracle, 1e-5)
    assert not any(d.excused for d in found)
    return [d.field for d in found]


def test_equal_results_have_no_difference() -> None:
    assert differences(lambda _: None) == []


def set_raw(key: str, index: int, value: Json) -> Callable[[dict[str, Json]], None]:
    def change(result: dict[str, Json]) -> None:
        result["logprobs"]["raw_logprobs"][key][index] = value

    return change


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda r: r.update(token_ids=[1, 1]), "token_ids"),
        (lambda r: r.update(num_accepted=0), "num_accepted"),
        (lambda r: r.update(status="INVALID_LOGITS"), "status"),
        (lambda r: r.update(bad_row=0), "bad_row"),
        (lambda r: r.update(finish_reason="stop"), "finish_reason"),
        (lambda r: r.update(seed=8), "seed"),
        (lambda r: r.update(lossy=True), "lossy"),
        (lambda r: r["logprobs"].pop("raw_logprobs"), "logprobs"),
        (set_raw("tokens", 1, -0.5), "raw_logprobs.tokens[1]"),
        (set_raw("ranks", 0, 2), "raw_logprobs.ranks[0]"),
        (set_raw("top", 0, [{"token_id": 1, "value": -0.2}]), "raw_logprobs.top[0]"),
        (set_raw("chosen", 0, [{"token_id": 3, "value": 0.0}]), "raw_logprobs.chosen[0]"),
        (lambda r: r["logprobs"]["raw_logprobs"].update(ranks=[1]), "raw_logprobs.ranks"),
        (lambda r: r["logprobs"]["raw_logprobs"].update(cumulative=None), "raw_logprobs.cumulative"),
        (lambda r: r["logprobs"]["processed_logits"].update(cumulative=1.0), "processed_logits.cumulative"),
    ],
)  # fmt: skip
def test_every_difference_is_seen(change: Callable[[dict[str, Json]], None], field: str) -> None:
    assert differences(change) == [field]


def test_values_may_differ_by_the_tolerance() -> None:
    exact = run_step(STEP).result["requests"][0]["logprobs"]["raw_logprobs"]["tokens"][0]
    assert differences(set_raw("tokens", 0, exact + 0.9e-4)) == []
    assert differences(set_raw("tokens", 0, exact + 1.1e-4)) == ["raw_logprobs.tokens[0]"]


def near_step(distance: float) -> StepOutcome:
    """A draw whose uniform lies `distance` above the edge between two tokens."""
    step = copy.deepcopy(STEP)
    step["requests"][0]["params"] = {"seed": 9, "logprobs_modes": ["raw_logprobs"]}
    oracle = run_step(step)
    oracle.outcomes[0].margins.recorded.clear()
    oracle.outcomes[0].margins.add("draw", 0, distance)
    return oracle


@pytest.mark.parametrize(("distance", "excused"), [(0.9e-6, True), (1.1e-6, False)])
def test_a_close_decision_excuses_other_tokens(distance: float, excused: bool) -> None:
    oracle = near_step(distance)
    product = copy.deepcopy(oracle.result)
    product["requests"][0]["token_ids"] = [0] * len(product["requests"][0]["token_ids"])
    found = compare_step(product, oracle, 1e-6)
    assert [d.field for d in found] == ["token_ids"]
    assert found[0].excused is excused


def test_a_close_draw_does_not_excuse_a_wrong_value() -> None:
    oracle = near_step(1e-9)
    product = copy.deepcopy(oracle.result)
    product["requests"][0]["logprobs"]["raw_logprobs"]["tokens"][0] += 1.0
    assert [d.excused for d in compare_step(product, oracle, 1e-6)] == [False]


def test_refusals_compare_by_code() -> None:
    refused = run_step({"vocab_size": 0})
    assert compare_step({"error": {"code": "INVALID_ARGUMENT", "message": "other words"}}, refused, 1e-6) == []
    assert compare_step({"error": {"code": "INTERNAL"}}, refused, 1e-6)
    assert compare_step(run_step(STEP).result, refused, 1e-6)
    assert compare_step({"error": {"code": "INVALID_ARGUMENT"}}, run_step(STEP), 1e-6)


def test_seedless_requests_are_replayed_from_the_returned_seed() -> None:
    step = copy.deepcopy(STEP)
    step["requests"][0]["params"] = {}
    for seed in range(20):
        assert check_against_oracle(step, run_step(step, [seed]).result) == []


@pytest.mark.parametrize(
    ("dtypes", "threshold"),
    [
        ({"dtype": "float32"}, 1e-5),
        ({"dtype": "bfloat16"}, 1e-6),
        ({"dtype": "float16", "draft_dtype": "float32"}, 1e-5),
    ],
)
def test_threshold_by_dtype(dtypes: dict[str, str], threshold: float) -> None:
    assert excuse_threshold(dtypes) == threshold
