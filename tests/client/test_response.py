"""What a message says is what the result says, as columns and request by request."""

from __future__ import annotations

import numpy as np
import pytest

from sampler_client import FinishReason, LogprobsMode, ServerFault, Status
from sampler_client.codec.response import decode_result, decode_stream_response, decode_verify_response
from sampler_client.v1 import sampler_pb2 as pb

NAN = float("nan")
RAW, LOGITS = LogprobsMode.RAW_LOGPROBS, LogprobsMode.RAW_LOGITS


def floats(*values: float) -> bytes:
    return np.asarray(values, dtype="<f4").tobytes()


def ints(*values: int) -> bytes:
    return np.asarray(values, dtype="<i4").tobytes()


MESSAGE = pb.StepResult(
    # Request 0 emitted two tokens, request 1 has a bad row, request 2 one token and no raw logprobs.
    token_ids=[7, 8, 9],
    cu_tokens=[0, 2, 2, 3],
    num_accepted=[1, 0, 0],
    status=[pb.REQUEST_STATUS_OK, pb.REQUEST_STATUS_INVALID_LOGITS, pb.REQUEST_STATUS_OK],
    seed=[2**64 - 1, 0, 3],
    finish_reason=[pb.FINISH_REASON_STOP, pb.FINISH_REASON_UNSPECIFIED, pb.FINISH_REASON_LENGTH],
    lossy=[False, False, True],
    bad_row=[-1, 2, -1],
    logprobs=[
        pb.LogprobsResult(
            mode=pb.LOGPROBS_MODE_RAW_LOGPROBS,
            values=[-0.5, -1.5, NAN],
            ranks=[1, 2, 0],
            cumulative=[-2.0, NAN, NAN],
            cu_top=[0, 2, 3, 3],
            top_token_ids=ints(7, 4, 5),
            top_values=floats(-0.5, -2.0, -0.25),
            cu_chosen=[0, 1, 2, 2],
            chosen_token_ids=ints(6, 6),
            chosen_values=floats(-3.0, -np.inf),
        ),
        pb.LogprobsResult(mode=pb.LOGPROBS_MODE_RAW_LOGITS, values=[1.0, 2.0, 3.0]),
    ],
    acceptance_probabilities=[1.0, 0.25],
    cu_acceptance_probabilities=[0, 2, 2, 2],
    timing=pb.Timing(queue_us=1, upload_us=2, device_us=3, download_us=4, total_us=11),
    backend="cpu",
    version="0.1.0",
)


def test_columns() -> None:
    result = decode_result(MESSAGE)
    assert result.token_ids.tolist() == [7, 8, 9]
    assert result.token_ids.dtype == np.int32
    assert result.cu_tokens.tolist() == [0, 2, 2, 3]
    assert result.seeds.dtype == np.uint64
    assert list(result.logprobs) == [RAW, LOGITS]
    assert result.timing.total_us == 11
    assert (result.backend, result.version) == ("cpu", "0.1.0")


def test_request_that_emitted() -> None:
    first = decode_result(MESSAGE).requests[0]
    assert first.token_ids.tolist() == [7, 8]
    assert (first.num_accepted, first.status, first.seed) == (1, Status.OK, 2**64 - 1)
    assert (first.finish_reason, first.lossy, first.bad_row) == (FinishReason.STOP, False, None)
    assert first.acceptance_probabilities is not None
    assert first.acceptance_probabilities.tolist() == [1.0, 0.25]
    raw = first.logprobs[RAW]
    assert raw.values.tolist() == [-0.5, -1.5]
    assert raw.ranks is not None
    assert raw.ranks.tolist() == [1, 2]
    assert raw.cumulative == -2.0
    assert [entries.pairs() for entries in raw.top] == [[(7, -0.5), (4, -2.0)], [(5, -0.25)]]
    assert raw.top[1].pairs() == raw.top[-1].pairs() == [(5, -0.25)]
    assert [entries.pairs() for entries in raw.top[1:]] == [[(5, -0.25)]]
    assert len(raw.top) == 2
    assert [entries.pairs() for entries in raw.chosen] == [[(6, -3.0)], [(6, -np.inf)]]
    with pytest.raises(IndexError):
        raw.top[2]
    with pytest.raises(ValueError, match="steps of 1"):
        raw.top[::2]


def test_logits_mode_has_neither_ranks_nor_sum_nor_entries() -> None:
    logits = decode_result(MESSAGE).requests[0].logprobs[LOGITS]
    assert logits.values.tolist() == [1.0, 2.0]
    assert logits.ranks is None
    assert logits.cumulative is None
    assert [len(entries) for entries in logits.top] == [0, 0]


def test_request_with_a_bad_row() -> None:
    bad = decode_result(MESSAGE).requests[1]
    assert (bad.status, bad.bad_row, bad.token_ids.tolist()) == (Status.INVALID_LOGITS, 2, [])
    assert bad.logprobs == {}


def test_request_that_asked_for_less() -> None:
    last = decode_result(MESSAGE).requests[2]
    assert list(last.logprobs) == [LOGITS]
    assert (last.finish_reason, last.lossy) == (FinishReason.LENGTH, True)
    assert last.acceptance_probabilities is not None
    assert last.acceptance_probabilities.tolist() == []


def test_nobody_asked_for_acceptance_probabilities() -> None:
    message = pb.StepResult(token_ids=[1], cu_tokens=[0, 1], status=[pb.REQUEST_STATUS_OK], seed=[1])
    assert decode_result(message).requests[0].acceptance_probabilities is None


def test_modes_of_a_newer_server_are_passed_over() -> None:
    message = pb.StepResult()
    message.CopyFrom(MESSAGE)
    message.logprobs.add().ParseFromString(b"\x08\x63")  # mode 99
    assert list(decode_result(message).logprobs) == [RAW, LOGITS]


def test_responses() -> None:
    assert decode_verify_response(pb.VerifyResponse(result=MESSAGE).SerializeToString()).backend == "cpu"
    answer = pb.VerifyStreamResponse(step_id=4, result=MESSAGE).SerializeToString()
    number, outcome = decode_stream_response(answer)
    assert number == 4
    assert not isinstance(outcome, Exception)


@pytest.mark.parametrize("data", [b"\xff", b"\x08\x01"], ids=["no message", "no outcome"])
def test_unreadable_answers(data: bytes) -> None:
    with pytest.raises(ServerFault, match="cannot be read"):
        decode_stream_response(data)
    if data == b"\xff":
        with pytest.raises(ServerFault, match="cannot be read"):
            decode_verify_response(data)
