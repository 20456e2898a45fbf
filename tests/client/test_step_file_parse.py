"""The JSON of a step file becomes the step it describes, or a refusal that names the place."""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampler_client import InvalidStep, LogprobsMode, Method, SamplingParams, Step
from sampler_client.stepfile import parse_step

REQUEST: dict[str, Any] = {
    "target_logits": [[0, 1, 2, 3], [3, 2, 1, 0]],
    "draft_token_ids": [2],
}


def document(*requests: dict[str, Any], **keys: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"vocab_size": 4, "requests": list(requests) or [REQUEST], **keys}


def parsed(*requests: dict[str, Any], **keys: Any) -> Step:  # noqa: ANN401
    return parse_step(json.dumps(document(*requests, **keys)))


def with_params(**params: Any) -> SamplingParams:  # noqa: ANN401
    return parsed({**REQUEST, "params": params}).params[0]


def refusal(text: str | bytes) -> InvalidStep:
    with pytest.raises(InvalidStep) as refused:
        parse_step(text)
    assert refused.value.code == "INVALID_ARGUMENT"
    return refused.value


def refused_as(value: object) -> tuple[str, str]:
    error = refusal(json.dumps(value))
    return error.reason, error.fields[0].field


def array(value: Any) -> np.ndarray[Any, Any]:  # noqa: ANN401
    assert isinstance(value, np.ndarray)
    return value


def test_smallest_step() -> None:
    step = parse_step('{"vocab_size": 4, "requests": [{"target_logits": [[0, 1, 2, 3]]}]}')
    assert array(step.target_logits).tolist() == [[0, 1, 2, 3]]
    assert array(step.target_logits).dtype == np.float32
    assert (list(step.draft_lengths), array(step.draft_token_ids).tolist()) == ([0], [])
    assert (step.draft_blocks, step.draft_block_index) == ([], [-1])
    assert (step.seeds, step.positions, step.num_output_tokens) == ([None], [0], [-1])
    assert (step.prompt_token_ids, step.output_token_ids) == (None, None)
    assert (step.target_logsumexp, step.draft_logsumexp) == (None, None)


def test_defaults_of_params() -> None:
    given_none = with_params()
    for name, value in vars(SamplingParams()).items():
        assert getattr(given_none, name) == value
    assert vars(with_params(temperature=None, max_tokens=None, logprobs_modes=None)) == vars(given_none)


def test_all_params() -> None:
    values: dict[str, Any] = {
        "method": "block",
        "temperature": 0,
        "draft_temperature": 0.5,
        "top_k": 3,
        "top_p": 0.5,
        "min_p": 1,
        "stop_token_ids": [1],
        "min_tokens": 2,
        "max_tokens": 3,
        "allowed_token_ids": [],
        "allowed_token_ids_by_row": [[1], [2]],
        "bad_words": [[1, 2]],
        "repetition_penalty": 1.5,
        "frequency_penalty": -0.5,
        "presence_penalty": 2,
        "synthetic_rates": [0.5],
        "typical_epsilon": 0.25,
        "typical_delta": 0.125,
        "relaxed_top_n": 4,
        "relaxed_margin": 0,
        "logprobs_modes": ["raw_logits", "processed_logprobs"],
        "ranks": False,
        "top_logprobs": 5,
        "logprob_token_ids": [3, 0],
        "acceptance_probabilities": True,
    }
    params = with_params(**values, logit_bias={"3": 1, "0": -2.5})
    assert params.method is Method.BLOCK
    assert params.logprobs_modes == [LogprobsMode.RAW_LOGITS, LogprobsMode.PROCESSED_LOGPROBS]
    assert params.logit_bias == {3: 1.0, 0: -2.5}
    for name, value in values.items():
        assert getattr(params, name) == value, name
    assert {*values, "logit_bias"} == {*vars(params)}


def test_columns() -> None:
    requests = [
        {**REQUEST, "params": {"seed": 7, "position": 9, "prompt_token_ids": [1, 2], "num_output_tokens": 3}},
        {**REQUEST, "params": {"output_token_ids": [5], "target_logsumexp": [1, "-inf"]}},
    ]
    step = parsed(*requests)
    assert (step.seeds, step.positions, step.num_output_tokens) == ([7, None], [9, 0], [3, -1])
    assert step.prompt_token_ids is not None
    assert array(step.prompt_token_ids.token_ids).tolist() == [1, 2]
    assert list(step.prompt_token_ids.lengths) == [2, 0]
    assert step.output_token_ids is not None
    assert list(step.output_token_ids.lengths) == [0, 1]
    assert array(step.target_logsumexp).tolist() == [0, 0, 1, -np.inf]
    assert step.has_target_logsumexp == [False, True]
    assert step.has_draft_logsumexp is None


def test_logsumexp_of_draft_rows_in_request_order() -> None:
    first = {**REQUEST, "draft_logits": [[1, 2, 3, 4]], "params": {"draft_logsumexp": [0.5]}}
    other = {**REQUEST, "draft_logits": [[1, 2]]}
    step = parsed(other, REQUEST, first)
    assert array(step.draft_logsumexp).tolist() == [0, 0.5]
    assert step.has_draft_logsumexp == [False, False, True]


def test_64_bit_integers_as_strings() -> None:
    step = parsed({**REQUEST, "params": {"seed": "18446744073709551615", "position": str(2**63)}})
    assert (step.seeds, step.positions) == ([2**64 - 1], [2**63])
    assert parsed({**REQUEST, "params": {"seed": 2**64 - 1}}).seeds == [2**64 - 1]  # exact, not through a double
    assert parsed({**REQUEST, "draft_token_ids": ["-1"]}).draft_lengths == [1]


def test_draft_vocabularies_become_blocks() -> None:
    two = {"target_logits": [[0] * 4] * 3, "draft_token_ids": [1, 2]}
    wide = {**two, "draft_logits": [[1] * 4, [2] * 4]}
    narrow = {**REQUEST, "draft_logits": [[3, 3]]}
    mapped = {**REQUEST, "draft_logits": [[4, 4]], "draft_id_map": [2, 0]}
    none = {**REQUEST, "draft_logits": None, "draft_id_map": None}
    empty = {"target_logits": [[0] * 4], "draft_logits": [], "draft_token_ids": []}
    step = parsed(wide, none, mapped, narrow, wide, empty, mapped)
    assert step.draft_block_index == [0, -1, 1, 2, 0, -1, 1]
    blocks = [array(block.logits).tolist() for block in step.draft_blocks]
    assert blocks == [[[1] * 4, [2] * 4] * 2, [[4, 4]] * 2, [[3, 3]]]
    maps = [None if block.draft_id_map is None else array(block.draft_id_map).tolist() for block in step.draft_blocks]
    assert maps == [None, [2, 0], None]


def test_map_without_draft_logits_still_reaches_the_service() -> None:
    step = parsed({**REQUEST, "draft_id_map": [1, 1]})
    assert step.draft_block_index == [-1]
    assert array(step.draft_blocks[0].logits).shape == (0, 2)
    assert array(step.draft_blocks[0].draft_id_map).tolist() == [1, 1]


def test_dtypes() -> None:
    request = {**REQUEST, "draft_logits": [[0.1, 0.2, 0.3, 0.4]]}
    step = parsed(request, dtype="bfloat16")
    assert array(step.target_logits).dtype == array(step.draft_blocks[0].logits).dtype == ml_dtypes.bfloat16
    step = parsed(request, dtype="bfloat16", draft_dtype="float16")
    assert array(step.draft_blocks[0].logits).dtype == np.float16


def test_rounding_goes_by_way_of_float32() -> None:
    # A little above the middle between two bfloat16, by less than float32 can hold: rounded to float32 it is the
    # middle, which goes to the even neighbour; rounded at once it would go up.
    near = 1 + 2**-8 + 2**-40
    step = parsed({"target_logits": [[near, 0.1, 1e39, -1e300]]}, dtype="bfloat16")
    row = array(step.target_logits)[0].astype(np.float64).tolist()
    assert row == [1.0, 0.10009765625, np.inf, -np.inf]
    half = parsed({"target_logits": [[1e5, 65504, 0.1, 2**-24]]}, dtype="float16")
    assert array(half.target_logits)[0].astype(np.float64).tolist() == [np.inf, 65504, 0.0999755859375, 2**-24]


def test_logits_that_are_not_finite() -> None:
    step = parse_step('{"vocab_size": 4, "requests": [{"target_logits": [["-inf", "inf", "nan", -0.0]]}]}')
    row = array(step.target_logits)[0]
    assert row[0] == -np.inf
    assert row[1] == np.inf
    assert np.isnan(row[2])
    assert np.signbit(row[3])


def test_very_long_integers_are_numbers_but_no_integers() -> None:
    long = "1" * 5000
    text = f'{{"vocab_size": 1, "requests": [{{"target_logits": [[{long}]]}}]}}'
    assert array(parse_step(text).target_logits)[0, 0] == np.inf
    assert refusal(text.replace('"vocab_size": 1', f'"vocab_size": {long}')).reason == "MALFORMED_STEP"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("nonsense", "not JSON"),
        ('{"vocab_size": 4', "not JSON"),
        ('{"vocab_size": 4} {}', "not JSON"),
        ('{"vocab_size": 4,}', "not JSON"),
        ("{'vocab_size': 4}", "not JSON"),
        ('{"vocab_size": NaN}', "NaN is no JSON number"),
        ('{"vocab_size": -Infinity}', "-Infinity is no JSON number"),
        ('{"vocab_size": 4, "vocab_size": 4}', '"vocab_size" stands twice'),
        ('{"requests": [{"params": {"seed": 1, "seed": 2}}]}', '"seed" stands twice'),
        ("[" * 200_000, "nested too deeply"),
        ('{"a":' * 200_000, "nested too deeply"),
        (b'{"\xff": 1}', "not UTF-8"),
        ("[]", "expected an object"),
        ("null", "expected an object"),
        ("7", "expected an object"),
    ],
    ids=lambda text: str(text)[:20],
)
def test_malformed(text: str | bytes, says: str) -> None:
    error = refusal(text)
    assert error.reason == "MALFORMED_STEP"
    assert says in error.message
    assert len(error.message) < 200


def test_a_key_given_twice_is_found_among_many() -> None:
    """In time that grows with the keys, not with their square: that would be minutes."""
    bias = ",".join(f'"{i}":0' for i in [*range(100_000), 99_999])
    started = perf_counter()
    assert "99999" in refusal(f'{{"vocab_size":{{{bias}}}}}').message
    assert perf_counter() - started < 10


def test_surrogates_are_not_utf8() -> None:
    assert refusal('{"vocab_size": "\ud800"}').reason == "MALFORMED_STEP"


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (document(temperature=1), "the step"),
        (document({**REQUEST, "seed": 1}), "requests[0]"),
        (document(REQUEST, {**REQUEST, "params": {"topk": 1}}), "requests[1].params"),
        (document({**REQUEST, "params": {"Seed": 1}}), "requests[0].params"),
    ],
)
def test_unknown_keys(value: object, field: str) -> None:
    assert refused_as(value) == ("UNKNOWN_KEY", field)


@pytest.mark.parametrize("key", ["vocab_size", "requests"])
@pytest.mark.parametrize("null", [False, True])
def test_required_keys(key: str, null: bool) -> None:
    value = {name: entry for name, entry in document().items() if name != key}
    assert refused_as({**value, key: None} if null else value) == ("FIELD_REQUIRED", f"the step.{key}")


def test_target_logits_are_required() -> None:
    assert refused_as(document({"draft_token_ids": []})) == ("FIELD_REQUIRED", "requests[0].target_logits")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({"target_logits": [[0] * 4]}, "target_logits"),
        ({"target_logits": [[0] * 4] * 3}, "target_logits"),
        ({"target_logits": [[0] * 4, [0] * 3]}, "target_logits"),
        ({"target_logits": [[0] * 4, [0] * 5]}, "target_logits"),
        ({"draft_logits": []}, "draft_logits"),
        ({"draft_logits": [[0] * 4] * 2}, "draft_logits"),
        ({"draft_logits": [[0] * 4], "draft_id_map": [0, 1]}, "draft_id_map"),
        ({"params": {"target_logsumexp": [1]}}, "params.target_logsumexp"),
        ({"params": {"draft_logsumexp": []}}, "params.draft_logsumexp"),
    ],
    ids=str,
)
def test_counts_are_checked_request_by_request(request_: dict[str, Any], field: str) -> None:
    assert refused_as(document(REQUEST, {**REQUEST, **request_})) == ("SHAPE_MISMATCH", f"requests[1].{field}")


def test_counts_that_only_add_up_are_refused() -> None:
    one_too_many = {**REQUEST, "target_logits": [[0] * 4] * 3}
    one_too_few = {**REQUEST, "target_logits": [[0] * 4]}
    assert refused_as(document(one_too_many, one_too_few)) == ("SHAPE_MISMATCH", "requests[0].target_logits")


def test_draft_rows_of_different_lengths() -> None:
    request = {"target_logits": [[0] * 4] * 3, "draft_token_ids": [0, 1], "draft_logits": [[0] * 4, [0] * 3]}
    assert refused_as(document(request)) == ("SHAPE_MISMATCH", "requests[0].draft_logits")


INTEGERS = [
    "top_k",
    "min_tokens",
    "max_tokens",
    "relaxed_top_n",
    "top_logprobs",
    "seed",
    "position",
    "num_output_tokens",
]
NUMBERS = [
    "temperature",
    "draft_temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "typical_delta",
    "relaxed_margin",
]
ID_LISTS = ["stop_token_ids", "allowed_token_ids", "logprob_token_ids", "prompt_token_ids", "output_token_ids"]


@pytest.mark.parametrize("key", INTEGERS)
@pytest.mark.parametrize("wrong", [1.0, 1e3, True, "1.0", "01", "+1", " 1", "", "1e3", "\u0661", [1], {}], ids=repr)
def test_what_is_no_integer(key: str, wrong: object) -> None:
    value = document({**REQUEST, "params": {key: wrong}})
    assert refused_as(value) == ("MALFORMED_STEP", f"requests[0].params.{key}")


@pytest.mark.parametrize("key", INTEGERS)
@pytest.mark.parametrize("wrong", [2**64, -(2**63) - 1, str(2**64), 10**39])
def test_integers_that_the_contract_cannot_carry(key: str, wrong: object) -> None:
    value = document({**REQUEST, "params": {key: wrong}})
    assert refused_as(value) == ("PARAMETER_OUT_OF_RANGE", f"requests[0].params.{key}")


@pytest.mark.parametrize("key", ["seed", "position", "num_output_tokens"])
def test_columns_that_cannot_be_negative(key: str) -> None:
    # -1 output tokens would mean "not given" on the wire.
    value = document({**REQUEST, "params": {key: -1}})
    assert refused_as(value) == ("PARAMETER_OUT_OF_RANGE", f"requests[0].params.{key}")


def test_ranges_are_left_to_the_service() -> None:
    params = with_params(top_k=-1, temperature=-1, top_p=7, max_tokens=0, top_logprobs=1000, stop_token_ids=[-5, 2**40])
    assert (params.top_k, params.temperature, params.top_p, params.stop_token_ids) == (-1, -1, 7, [-5, 2**40])


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("wrong", [True, "1.0", "inf", [1.0], {}], ids=repr)
def test_what_is_no_number(key: str, wrong: object) -> None:
    value = document({**REQUEST, "params": {key: wrong}})
    assert refused_as(value) == ("MALFORMED_STEP", f"requests[0].params.{key}")


@pytest.mark.parametrize("key", ID_LISTS)
def test_what_is_no_list_of_ids(key: str) -> None:
    for wrong, reason, place in (
        (1, "MALFORMED_STEP", ""),
        ({}, "MALFORMED_STEP", ""),
        ([1, 1.5], "MALFORMED_STEP", "[1]"),
        ([True], "MALFORMED_STEP", "[0]"),
        ([None], "MALFORMED_STEP", "[0]"),
        ([0, 2**63], "TOKEN_ID_OUT_OF_RANGE", "[1]"),
    ):
        value = document({**REQUEST, "params": {key: wrong}})
        assert refused_as(value) == (reason, f"requests[0].params.{key}{place}")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (document(dtype="float64"), "DTYPE_UNSUPPORTED"),
        (document(draft_dtype="f16"), "DTYPE_UNSUPPORTED"),
        (document(dtype=1), "MALFORMED_STEP"),
        (document(vocab_size=-1), "PARAMETER_OUT_OF_RANGE"),
        (document(vocab_size=4.0), "MALFORMED_STEP"),
        (document(requests={}), "MALFORMED_STEP"),
        (document(requests=[7]), "MALFORMED_STEP"),
        (document({**REQUEST, "draft_token_ids": 0}), "MALFORMED_STEP"),
        (document({**REQUEST, "draft_token_ids": ["x"]}), "MALFORMED_STEP"),
        (document({**REQUEST, "target_logits": [[0, 1, 2, True], [0] * 4]}), "MALFORMED_STEP"),
        (document({**REQUEST, "target_logits": [[0, 1, 2, "NaN"], [0] * 4]}), "MALFORMED_STEP"),
        (document({**REQUEST, "target_logits": [[0, 1, 2, None], [0] * 4]}), "MALFORMED_STEP"),
        (document({**REQUEST, "target_logits": [0, 1]}), "MALFORMED_STEP"),
        (document({**REQUEST, "params": []}), "MALFORMED_STEP"),
        (document({**REQUEST, "params": {"method": "greedy"}}), "ENUM_UNKNOWN"),
        (document({**REQUEST, "params": {"method": 1}}), "MALFORMED_STEP"),
        (document({**REQUEST, "params": {"logprobs_modes": ["raw"]}}), "ENUM_UNKNOWN"),
        (document({**REQUEST, "params": {"logprobs_modes": "raw_logprobs"}}), "MALFORMED_STEP"),
        (document({**REQUEST, "params": {"logit_bias": []}}), "MALFORMED_STEP"),
        (document({**REQUEST, "params": {"logit_bias": {"x": 1}}}), "MALFORMED_STEP"),
        (document({**REQUEST, "params": {"logit_bias": {"1": "a"}}}), "MALFORMED_STEP"),
        (document({**REQUEST, "params": {"ranks": 1}}), "MALFORMED_STEP"),
        (document({**REQUEST, "params": {"bad_words": [1]}}), "MALFORMED_STEP"),
    ],
    ids=lambda value: json.dumps(value)[-60:],
)
def test_wrong_types_and_names(value: object, reason: str) -> None:
    assert refused_as(value)[0] == reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["vocab_size", "requests", "params", "target_logits", "draft_logits", "seed", "logit_bias", "1"]
            ),
            inner,
            max_size=4,
        )
    ),
)


@given(JSON)
def test_any_json_is_a_step_or_refused(value: object) -> None:
    try:
        parse_step(json.dumps(value))
    except InvalidStep as error:
        assert error.reason in error.message  # noqa: PT017  (most are refused, some are steps)


@given(st.binary(max_size=40))
def test_any_bytes_are_refused(data: bytes) -> None:
    assert refusal(data).reason in ("MALFORMED_STEP", "FIELD_REQUIRED")
