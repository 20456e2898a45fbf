"""One step-file object for each rule whose breach is INVALID_ARGUMENT: a legal step, broken in one place."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from tests.oracle.request import Json

VOCAB_SIZE, K = 6, 2


def legal_step() -> dict[str, Json]:
    """Two requests, V = 6, k = 2, with draft logits and a seed; request 1 is the one that gets broken."""
    request = {
        "target_logits": [[0.0, 1.0, 2.0, 0.5, -1.0, 0.25]] * (K + 1),
        "draft_logits": [[0.5, 1.0, 1.5, 0.5, -1.0, 0.0]] * K,
        "draft_token_ids": [2, 1],
        "params": {"seed": 7, "position": 3},
    }
    return {"vocab_size": VOCAB_SIZE, "dtype": "float32", "requests": [request, copy.deepcopy(request)]}


_LSE = {"target_logsumexp": [3.0] * (K + 1), "draft_logsumexp": [3.0] * K, "ranks": False}

BAD_PARAMS: dict[str, dict[str, Json]] = {
    "temperature below the least": {"temperature": 9e-6},
    "temperature negative": {"temperature": -1.0},
    "draft temperature below the least": {"draft_temperature": 1e-6},
    "draft temperature negative": {"draft_temperature": -0.5},
    "top_p zero": {"top_p": 0.0},
    "top_p above one": {"top_p": 1.0001},
    "min_p negative": {"min_p": -0.1},
    "min_p above one": {"min_p": 1.5},
    "top_k negative": {"top_k": -1},
    "repetition penalty zero": {"repetition_penalty": 0.0},
    "typical epsilon zero": {"typical_epsilon": 0.0},
    "typical epsilon above one": {"typical_epsilon": 1.1},
    "typical delta zero": {"typical_delta": 0.0},
    "typical delta above one": {"typical_delta": 2.0},
    "synthetic without rates": {"method": "synthetic"},
    "too few synthetic rates": {"method": "synthetic", "synthetic_rates": [0.5] * (K - 1)},
    "synthetic rate above one": {"method": "synthetic", "synthetic_rates": [0.5] * (K - 1) + [1.1]},
    "synthetic rate negative": {"method": "synthetic", "synthetic_rates": [-0.1] * K},
    "relaxed without top n": {"method": "relaxed", "relaxed_margin": 1.0},
    "relaxed without margin": {"method": "relaxed", "relaxed_top_n": 2},
    "relaxed top n zero": {"method": "relaxed", "relaxed_top_n": 0, "relaxed_margin": 1.0},
    "relaxed margin negative": {"method": "relaxed", "relaxed_top_n": 2, "relaxed_margin": -0.5},
    "max_tokens zero": {"max_tokens": 0},
    "min_tokens negative": {"min_tokens": -1},
    "top_logprobs negative": {"top_logprobs": -1},
    "top_logprobs above the most": {"top_logprobs": 257},
    "position + k at 2**64": {"position": str(2**64 - K)},
    "position negative": {"position": -1},
    "seed at 2**64": {"seed": str(2**64)},
    "seed negative": {"seed": -1},
    "unknown method": {"method": "fast"},
    "unknown mode": {"logprobs_modes": ["raw"]},
    "unknown key": {"temprature": 1.0},
    "empty allowed list": {"allowed_token_ids": []},
    "both allowed lists": {"allowed_token_ids": [1], "allowed_token_ids_by_row": [[1]] * (K + 1)},
    "allowed rows one short": {"allowed_token_ids_by_row": [[1]] * K},
    "allowed rows one over": {"allowed_token_ids_by_row": [[1]] * (K + 2)},
    "allowed id at V": {"allowed_token_ids": [VOCAB_SIZE]},
    "allowed id by row negative": {"allowed_token_ids_by_row": [[1], [-1], [1]]},
    "bias id at V": {"logit_bias": {str(VOCAB_SIZE): 1.0}},
    "stop id at V": {"stop_token_ids": [VOCAB_SIZE]},
    "stop id negative": {"stop_token_ids": [-1]},
    "bad word at V": {"bad_words": [[1, VOCAB_SIZE]]},
    "bad word negative": {"bad_words": [[-1]]},
    "chosen id at V": {"logprob_token_ids": [VOCAB_SIZE]},
    "log-sum-exps with another method": _LSE | {"method": "block"},
    "log-sum-exps at temperature 0": _LSE | {"temperature": 0.0},
    "log-sum-exps with a filter": _LSE | {"top_p": 0.9},
    "log-sum-exps with a bias": _LSE | {"logit_bias": {"1": 1.0}},
    "log-sum-exps with a mask": _LSE | {"allowed_token_ids": [1, 2]},
    "log-sum-exps with ranks": _LSE | {"ranks": True},
    "log-sum-exps with top_logprobs": _LSE | {"top_logprobs": 1},
    "log-sum-exps with raw_logprobs": _LSE | {"temperature": 0.5},
    "target log-sum-exps one short": _LSE | {"target_logsumexp": [3.0] * K},
    "draft log-sum-exps one over": _LSE | {"draft_logsumexp": [3.0] * (K + 1)},
}
"""Params that must be refused, by what is wrong with them."""

BAD_REQUESTS: dict[str, dict[str, Json]] = {
    "draft id without a draft column": {"draft_token_ids": [2, VOCAB_SIZE]},
    "draft id below -1": {"draft_token_ids": [-2, 1]},
    "draft id after a placeholder": {"draft_token_ids": [-1, VOCAB_SIZE]},
    "draft id at V without draft logits": {"draft_logits": None, "draft_token_ids": [2, VOCAB_SIZE]},
    "draft id outside the map": {"draft_id_map": [0, 1], "draft_logits": [[0.0, 1.0]] * K, "draft_token_ids": [0, 2]},
    "duplicate in the map": {"draft_id_map": [0, 0], "draft_logits": [[0.0, 1.0]] * K, "draft_token_ids": [0, 0]},
    "map id at V": {"draft_id_map": [0, VOCAB_SIZE], "draft_logits": [[0.0, 1.0]] * K, "draft_token_ids": [0, 0]},
    "map of another length": {"draft_id_map": [2, 1, 0]},
    "one target row short": {"target_logits": [[0.0] * VOCAB_SIZE] * K},
    "target row of another width": {"target_logits": [[0.0] * (VOCAB_SIZE + 1)] * (K + 1)},
    "one draft row over": {"draft_logits": [[0.0] * VOCAB_SIZE] * (K + 1)},
    "draft ids that are no list": {"draft_token_ids": 3},
    "a logit that is no number": {"target_logits": [["x"] * VOCAB_SIZE] * (K + 1)},
    "129 draft tokens": {
        "draft_token_ids": [1] * 129, "draft_logits": None, "target_logits": [[0.0] * VOCAB_SIZE] * 130,
    },
    "unknown request key": {"logits": []},
}  # fmt: skip
"""Parts of a request that must be refused."""

BAD_STEPS: dict[str, dict[str, Json]] = {
    "no vocabulary": {"vocab_size": 0},
    "no requests": {"requests": []},
    "unknown dtype": {"dtype": "float64"},
    "unknown draft dtype": {"draft_dtype": "int8"},
    "unknown step key": {"version": 1},
}
"""Parts of a step that must be refused."""

NON_FINITE_PARAMS = (
    "temperature", "draft_temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty",
    "presence_penalty", "typical_epsilon", "typical_delta",
)  # fmt: skip
"""Params that may be neither NaN nor infinite. JSON cannot say so; an in-process caller and the wire can."""


def illegal_steps() -> Iterator[tuple[str, dict[str, Json]]]:
    """(what is wrong, the step), for every rule."""
    for name, params in BAD_PARAMS.items():
        step = legal_step()
        step["requests"][1]["params"] |= params
        yield name, step
    for name, parts in BAD_REQUESTS.items():
        step = legal_step()
        step["requests"][1] |= parts
        yield name, step
    for name, parts in BAD_STEPS.items():
        yield name, legal_step() | parts
