"""The generator makes legal steps that reach every part of the contract, and only the parts asked for."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.oracle.compare import compare_step, excuse_threshold
from tests.oracle.generate import ALL, FIRST_CUT, generate_step
from tests.oracle.request import Json
from tests.oracle.step import run_step

STEPS = 400


def requests(features: frozenset[str]) -> list[dict[str, Json]]:
    return [r for seed in range(STEPS) for r in generate_step(seed, features)["requests"]]


def test_equal_seeds_give_equal_steps_that_survive_json() -> None:
    for seed in range(20):
        step = generate_step(seed)
        assert json.loads(json.dumps(step, allow_nan=False)) == step == generate_step(seed)


def test_every_step_is_legal_and_every_part_is_reached() -> None:
    seen: Counter[str] = Counter()
    close = total = 0
    for seed in range(STEPS):
        step = generate_step(seed)
        oracle = run_step(step)
        assert oracle.refusal is None, (seed, str(oracle.refusal))
        assert compare_step(oracle.result, oracle, excuse_threshold(step)) == []
        for given, outcome in zip(step["requests"], oracle.outcomes, strict=True):
            params = given["params"]
            seen.update(list(params))
            seen.update(key for key in ("draft_logits", "draft_id_map") if key in given)
            seen[outcome.status] += 1
            seen[f"finish {outcome.finish_reason}"] += 1
            seen["placeholder"] += -1 in given["draft_token_ids"]
            method = params.get("method", "standard")
            if method in ("standard", "strict", "block") and params.get("temperature") == 0.0:
                method = "greedy"
            seen[method] += 1
            seen[f"{method} accepts"] += outcome.accepted_uncut > 0
            seen[f"{method} rejects"] += outcome.accepted_uncut < len(given["draft_token_ids"])
            total += 1
            close += outcome.margins.smallest().distance < excuse_threshold(step)
    methods = ("greedy", "standard", "strict", "block", "synthetic", "typical", "relaxed")
    parts = [
        "temperature", "draft_temperature", "top_k", "top_p", "min_p", "seed", "position", "stop_token_ids",
        "min_tokens", "max_tokens", "allowed_token_ids", "allowed_token_ids_by_row", "logit_bias", "bad_words",
        "repetition_penalty", "frequency_penalty", "presence_penalty", "num_output_tokens", "logprobs_modes", "ranks",
        "top_logprobs", "logprob_token_ids", "acceptance_probabilities", "target_logsumexp", "draft_logsumexp",
        "draft_logits", "draft_id_map", "OK", "INVALID_LOGITS", "finish stop", "finish length", "finish None",
        "placeholder", *methods, *(f"{m} {what}" for m in methods for what in ("accepts", "rejects")),
    ]  # fmt: skip
    assert [part for part in parts if seen[part] < 5] == []
    # Excuses must stay rare, or the comparison would judge little.
    assert close <= 0.02 * total


def test_the_first_cut_holds_nothing_else() -> None:
    allowed = {
        "method", "temperature", "draft_temperature", "seed", "position", "top_logprobs", "ranks", "logprob_token_ids",
    }  # fmt: skip
    for given in requests(FIRST_CUT):
        assert set(given["params"]) <= allowed
        assert given["params"].get("method", "standard") == "standard"


@pytest.mark.parametrize("feature", sorted(ALL - FIRST_CUT - {"strict", "block", "synthetic", "typical", "relaxed"}))
def test_a_feature_left_out_does_not_appear(feature: str) -> None:
    keys = {
        "mask": {"allowed_token_ids", "allowed_token_ids_by_row"}, "bias": {"logit_bias"}, "stop": {"stop_token_ids"},
        "penalties": {"repetition_penalty", "frequency_penalty", "presence_penalty"},
        "logsumexp": {"target_logsumexp", "draft_logsumexp"},
    }.get(feature, {feature})  # fmt: skip
    left_out = ALL - {feature, "min_tokens"} if feature == "stop" else ALL - {feature}
    for seed in range(60):
        for given in generate_step(seed, left_out)["requests"]:
            modes = given["params"].get("logprobs_modes") == [] and feature == "logprobs_modes"
            assert modes or not keys & set(given["params"])


def test_unknown_features_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown features"):
        generate_step(0, ALL | {"beams"})
    with pytest.raises(ValueError, match="no method"):
        generate_step(0, frozenset({"temperature"}))
