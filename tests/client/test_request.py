"""What a step says is what the message says, field by field."""

from __future__ import annotations

import gc
import weakref
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from sampler_client import DraftBlock, History, InvalidStep, LogprobsMode, Method, SamplingParams, Step
from sampler_client.codec.params import encode_params
from sampler_client.codec.request import ParamsColumns, encode_stream_request, encode_verify_request
from sampler_client.codec.wire import varint
from sampler_client.v1 import sampler_pb2 as pb
from tests.client.steps import step

FULL = SamplingParams(
    method=Method.RELAXED,
    temperature=0.5,
    draft_temperature=0.25,
    top_k=3,
    top_p=0.75,
    min_p=0.125,
    stop_token_ids=[1, 2],
    min_tokens=4,
    max_tokens=5,
    allowed_token_ids=[1],
    allowed_token_ids_by_row=[[1, 2], [3]],
    logit_bias={3: 1.5, 0: -2.0},
    bad_words=[[1], [2, 3]],
    repetition_penalty=1.25,
    frequency_penalty=0.5,
    presence_penalty=-0.5,
    synthetic_rates=[0.5, 1.0],
    typical_epsilon=0.5,
    typical_delta=0.125,
    relaxed_top_n=6,
    relaxed_margin=0.75,
    logprobs_modes=[LogprobsMode.RAW_LOGITS, LogprobsMode.PROCESSED_LOGPROBS],
    ranks=False,
    top_logprobs=7,
    logprob_token_ids=[3, 1],
    acceptance_probabilities=True,
)
FULL_MESSAGE = pb.SamplingParams(
    method=pb.METHOD_RELAXED,
    temperature=0.5,
    draft_temperature=0.25,
    top_k=3,
    top_p=0.75,
    min_p=0.125,
    stop_token_ids=[1, 2],
    min_tokens=4,
    max_tokens=5,
    allowed_token_ids=pb.AllowedTokenIds(token_ids=[1]),
    allowed_token_ids_by_row=pb.AllowedTokenIdsByRow(token_ids=[1, 2, 3], lengths=[2, 1]),
    logit_bias=pb.LogitBias(token_ids=[3, 0], values=[1.5, -2.0]),
    bad_words=pb.BadWords(token_ids=[1, 2, 3], lengths=[1, 2]),
    repetition_penalty=1.25,
    frequency_penalty=0.5,
    presence_penalty=-0.5,
    synthetic_rates=[0.5, 1.0],
    typical_epsilon=0.5,
    typical_delta=0.125,
    relaxed_top_n=6,
    relaxed_margin=0.75,
    logprobs_modes=pb.LogprobsModes(modes=[pb.LOGPROBS_MODE_RAW_LOGITS, pb.LOGPROBS_MODE_PROCESSED_LOGPROBS]),
    ranks=False,
    top_logprobs=7,
    logprob_token_ids=[3, 1],
    acceptance_probabilities=True,
)


def encoded(params: SamplingParams) -> pb.SamplingParams:
    (message,) = pb.Step.FromString(encode_params(params)).params
    return message


def sent(what: Step) -> pb.Step:
    return pb.VerifyRequest.FromString(encode_verify_request(what)).step


def values(tensor: pb.Tensor, dtype: str = "<i8") -> Any:  # noqa: ANN401
    return np.frombuffer(tensor.inline_bytes, dtype=dtype).reshape(tensor.shape).tolist()


def test_params_have_the_fields_of_the_contract() -> None:
    contract = [field.name for field in pb.SamplingParams.DESCRIPTOR.fields]
    assert [field.name for field in fields(SamplingParams)] == contract
    assert {field.name for field, _ in FULL_MESSAGE.ListFields()} == set(contract)


def test_params_are_encoded_whole() -> None:
    assert encoded(FULL) == FULL_MESSAGE


def test_defaults_are_left_to_the_server() -> None:
    assert encoded(SamplingParams()) == pb.SamplingParams(method=pb.METHOD_STANDARD)


def test_absent_and_empty_differ() -> None:
    empty = encoded(SamplingParams(allowed_token_ids=[], allowed_token_ids_by_row=[], logprobs_modes=[]))
    assert empty.HasField("allowed_token_ids")
    assert empty.HasField("allowed_token_ids_by_row")
    assert empty.HasField("logprobs_modes")
    assert not empty.logprobs_modes.modes


def test_zero_is_sent_where_it_is_not_the_default() -> None:
    message = encoded(SamplingParams(temperature=0, draft_temperature=0.0, max_tokens=0, top_p=0, relaxed_top_n=0))
    for name in ("temperature", "draft_temperature", "max_tokens", "top_p", "relaxed_top_n"):
        assert message.HasField(name)
        assert getattr(message, name) == 0


def test_nan_reaches_the_check_that_names_it() -> None:
    assert np.isnan(encoded(SamplingParams(temperature=float("nan"))).temperature)


def test_params_are_encoded_once_in_their_life() -> None:
    params = SamplingParams(temperature=0.5)
    assert encode_params(params) is encode_params(params)
    reference = weakref.ref(params)
    del params
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"top_k": 2**63},
        {"top_k": 1.5},
        {"temperature": "hot"},
        {"stop_token_ids": [1, 2**64]},
        {"method": "guess"},
        {"logprobs_modes": ["all"]},
        {"bad_words": [[-(2**63) - 1]]},
        {"logit_bias": {2**63: 1.0}},
    ],
    ids=str,
)
def test_params_that_the_contract_cannot_say(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidStep) as refused:
        encode_params(SamplingParams(**wrong))
    assert refused.value.reason == "PARAMETER_OUT_OF_RANGE"
    assert refused.value.fields[0].field.startswith(f"params.{next(iter(wrong))}")


def test_step_is_encoded_whole() -> None:
    message = sent(
        Step(
            target_logits=np.arange(20, dtype=np.float16).reshape(5, 4),
            draft_lengths=np.asarray([2, 1]),
            draft_token_ids=np.asarray([1, -1, 3], dtype=np.int32),
            draft_blocks=[
                DraftBlock(np.ones((2, 3), np.float32), np.asarray([2, 0, 1])),
                DraftBlock(np.zeros((1, 4), np.float32)),
            ],
            draft_block_index=[0, 1],
            params=[SamplingParams(), SamplingParams(top_k=2)],
            params_index=[1, 0],
            seeds=[2**64 - 1, None],
            positions=[2**63, 0],
            num_output_tokens=[-1, 3],
            prompt_token_ids=History.of([[1, 2], []]),
            output_token_ids=History(
                token_ids=np.ones((2, 3), np.int32),
                lengths=[0, 2],
                sparse_token_ids=[5],
                sparse_counts=[6],
                sparse_lengths=[1, 0],
                kept_histories=[0, 9],
                kept_lengths=[0, 4],
            ),
            token_bitmask=np.asarray([[-1]], np.int32),
            token_bitmask_index=[0, -1],
            target_logsumexp=[1.0, 2.0, 3.0, 4.0, 5.0],
            has_target_logsumexp=[True, False],
            draft_logsumexp=np.asarray([1.0, 2.0, 3.0]),
            has_draft_logsumexp=[False, True],
        )
    )
    assert values(message.target_logits, "<f2") == np.arange(20.0).reshape(5, 4).tolist()
    assert list(message.draft_lengths) == [2, 1]
    assert values(message.draft_token_ids, "<i4") == [1, -1, 3]
    assert [values(block.logits, "<f4") for block in message.draft_blocks] == [[[1.0] * 3] * 2, [[0.0] * 4]]
    assert values(message.draft_blocks[0].draft_id_map) == [2, 0, 1]
    assert not message.draft_blocks[1].HasField("draft_id_map")
    assert list(message.draft_block_index) == [0, 1]
    assert [entry.top_k for entry in message.params] == [0, 2]
    assert list(message.params_index) == [1, 0]
    assert (list(message.seeds), list(message.has_seed)) == ([2**64 - 1, 0], [True, False])
    assert list(message.positions) == [2**63, 0]
    assert list(message.num_output_tokens) == [-1, 3]
    assert (values(message.prompt_token_ids.token_ids), list(message.prompt_token_ids.lengths)) == ([1, 2], [2, 0])
    history = message.output_token_ids
    assert (values(history.token_ids, "<i4"), list(history.lengths)) == ([[1] * 3] * 2, [0, 2])
    assert (values(history.sparse_token_ids), values(history.sparse_counts)) == ([5], [6])
    assert list(history.sparse_lengths) == [1, 0]
    assert (list(history.kept_histories), list(history.kept_lengths)) == ([0, 9], [0, 4])
    assert (values(message.token_bitmask.words, "<i4"), list(message.token_bitmask.mask_index)) == ([[-1]], [0, -1])
    assert values(message.target_logsumexp, "<f8") == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert list(message.has_target_logsumexp) == [True, False]
    assert values(message.draft_logsumexp, "<f8") == [1.0, 2.0, 3.0]
    assert list(message.has_draft_logsumexp) == [False, True]


def test_what_is_not_given_is_not_sent() -> None:
    message = sent(Step(target_logits=[[0.0, 1.0]], draft_lengths=[0]))
    assert {field.name for field, _ in message.ListFields()} == {"target_logits", "draft_lengths"}


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (1, 1), (100, 150)])
def test_message_is_the_one_protobuf_would_have_written(shape: tuple[int, int]) -> None:
    # Lengths on both sides of 128 and 16,384 bytes, where their own length changes.
    array = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    data = encode_verify_request(Step(target_logits=array, draft_lengths=[0]))
    message = pb.VerifyRequest.FromString(data)
    assert message.step.target_logits.inline_bytes == array.tobytes()
    assert len(message.SerializeToString()) == len(data)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("step_id", [*range(1, 2**9, 61), 2**14, 2**21, 2**28, 2**35, 2**42, 2**49, 2**56])
def test_large_arrays_lie_at_multiples_of_8(step_id: int, dtype: type[np.generic]) -> None:
    # Every length of the step id, which comes before the arrays, would otherwise move them by a byte.
    target, draft = np.full((3, 30_000), 1.5, dtype), np.full((2, 30_001), 2.5, dtype)
    what = Step(target_logits=target, draft_lengths=[2], draft_blocks=[DraftBlock(draft)], draft_token_ids=[1, 2])
    data = encode_stream_request(what, step_id=step_id)
    for array in (target, draft):
        assert data.index(array.tobytes()) % 8 == 0
    message = pb.VerifyStreamRequest.FromString(data)
    sent_target, sent_draft = message.step.target_logits, message.step.draft_blocks[0].logits
    assert message.step_id == step_id
    for tensor, array in ((sent_target, target), (sent_draft, draft)):
        assert (tensor.inline_bytes, list(tensor.shape)) == (array.tobytes(), list(array.shape))
        assert tensor.dtype == (pb.DTYPE_FLOAT32 if dtype is np.float32 else pb.DTYPE_FLOAT16)
    # Two fields of 11 bytes in all stand where one of 2 would; no length above is near enough to a boundary to grow.
    assert len(data) == len(message.SerializeToString()) + 2 * 9


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**14 - 1, 2**14, 2**32, 2**63])
def test_varint(number: int) -> None:
    # A uint64 field's content is its tag and the number.
    assert pb.VerifyStreamRequest(step_id=number).SerializeToString()[1:] == (varint(number) if number else b"")


def test_stream_request() -> None:
    what = step([1], params=[SamplingParams(top_k=1)])
    columns = ParamsColumns(sent=[SamplingParams(top_k=9)], index=[1], kept=[3], keep_as=[4])
    message = pb.VerifyStreamRequest.FromString(
        encode_stream_request(what, step_id=5, timeout_us=6, params=columns),
    )
    assert (message.step_id, message.timeout_us) == (5, 6)
    assert [entry.top_k for entry in message.step.params] == [9]
    assert list(message.step.params_index) == [1]
    assert list(message.step.kept_params) == [3]
    assert list(message.step.keep_params_as) == [4]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"seeds": [-1]}, "seeds[0]"),
        ({"seeds": [2**64]}, "seeds[0]"),
        ({"seeds": ["7"]}, "seeds[0]"),
        ({"positions": [-1]}, "positions[0]"),
        ({"draft_lengths": [0, 2**31]}, "draft_lengths[1]"),
        ({"params_index": [0.5]}, "params_index[0]"),
        ({"draft_blocks": [DraftBlock(np.zeros(3, np.float32))]}, "draft_blocks[0].logits"),
        ({"draft_blocks": [DraftBlock(np.zeros((1, 3), np.float32), [0.5])]}, "draft_blocks[0].draft_id_map"),
        ({"prompt_token_ids": History(token_ids=[0.5])}, "prompt_token_ids.token_ids"),
        ({"token_bitmask": np.zeros((1, 1), np.int64)}, "token_bitmask"),
        ({"target_logsumexp": ["a"]}, "target_logsumexp"),
    ],
    ids=str,
)
def test_step_that_the_contract_cannot_say(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidStep) as refused:
        encode_verify_request(Step(**{"target_logits": [[0.0, 1.0]], "draft_lengths": [0], **wrong}))
    assert refused.value.code == "INVALID_ARGUMENT"
    assert refused.value.fields[0].field == field
    assert field in refused.value.message


def test_idempotent_only_with_every_seed() -> None:
    assert step([1, 0]).idempotent
    assert not step([1, 0], seeded=False).idempotent
    for seeds in ([1, None], [1], []):
        assert not Step(target_logits=[[0.0]], draft_lengths=[0, 0], seeds=seeds).idempotent
