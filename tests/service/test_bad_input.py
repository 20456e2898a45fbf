"""Every kind of bad input: a clear error that names request and field, and the service goes on."""

from __future__ import annotations

import queue

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from sampler_client.v1 import sampler_pb2 as pb
from tests.service.serving import VERIFY, call, call_stream, stream_request, unary_request
from tests.service.steps import MISTAKES, Mistake, good_step

BY_NAME = pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)


def wrong_step(mistake: Mistake) -> pb.Step:
    step = good_step()
    mistake.change(step)
    return step


def refused(channel: grpc.Channel, method: str, request: bytes) -> grpc.Call:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, method, request)
    assert isinstance(caught.value, grpc.Call)
    return caught.value


def text_of(error: grpc.Call) -> str:
    return error.details() or ""


def stream_answers(channel: grpc.Channel, *requests: bytes) -> list[pb.VerifyStreamResponse]:
    """The answers to all requests, then the end of the stream."""
    waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    for request in (*requests, None):
        waiting.put(request)
    return list(call_stream(channel, iter(waiting.get, None)))


def check_text(mistake: Mistake, text: str) -> None:
    assert text.startswith(f"{mistake.reason}: ")
    assert mistake.field.rpartition(".")[2].partition("[")[0] in text
    assert mistake.request is None or f"request {mistake.request}" in text


@BY_NAME
def test_unary(channel: grpc.Channel, mistake: Mistake) -> None:
    error = refused(channel, VERIFY, unary_request(wrong_step(mistake)))
    status = rpc_status.from_call(error)
    assert status is not None
    assert error.code().name == mistake.code, status.message
    check_text(mistake, status.message)
    info, violations = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.metadata["field"]) == (mistake.reason, mistake.field), status.message
    assert info.metadata.get("request") == (None if mistake.request is None else str(mistake.request)), status.message
    if mistake.code == "INVALID_ARGUMENT":
        assert status.details[1].Unpack(violations)
        assert violations.field_violations[0].field == mistake.field


def test_stream_goes_on(channel: grpc.Channel) -> None:
    # All mistakes in one stream, a good step after each: what went wrong before must not change its answer.
    good = stream_request(good_step(), 1)
    wrong = [stream_request(wrong_step(mistake), 100 + i) for i, mistake in enumerate(MISTAKES)]
    answers = stream_answers(channel, *(request for one in wrong for request in (one, good)))
    expected = stream_answers(channel, good)[0].result
    assert len(answers) == 2 * len(MISTAKES)
    for i, mistake in enumerate(MISTAKES):
        failed, fine = answers[2 * i], answers[2 * i + 1]
        error = failed.error
        assert (failed.step_id, fine.step_id) == (100 + i, 1)
        assert (error.reason, error.metadata["field"]) == (mistake.reason, mistake.field), error.message
        assert grpc.StatusCode[mistake.code].value[0] == error.code
        check_text(mistake, error.message)
        if mistake.code == "INVALID_ARGUMENT":
            assert error.field_violations[0].field == mistake.field
        assert fine.result.token_ids == expected.token_ids
        assert fine.result.logprobs == expected.logprobs


@pytest.mark.parametrize("data", [b"\xff" * 40, b"\x0a\x05\x01", b"\x0a\xff\xff\xff\xff\x0f", b"\x00"])
def test_malformed_unary(channel: grpc.Channel, data: bytes) -> None:
    error = refused(channel, VERIFY, data)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "MALFORMED_MESSAGE" in text_of(error)


def test_malformed_in_stream(channel: grpc.Channel) -> None:
    answers = stream_answers(channel, b"\xff" * 40, stream_request(good_step(), 5))
    assert (answers[0].step_id, answers[0].error.reason) == (0, "MALFORMED_MESSAGE")
    assert (answers[1].step_id, answers[1].WhichOneof("outcome")) == (5, "result")


@pytest.mark.parametrize("request_bytes", [b"", pb.VerifyRequest().SerializeToString()])
def test_no_step(channel: grpc.Channel, request_bytes: bytes) -> None:
    error = refused(channel, VERIFY, request_bytes)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "FIELD_REQUIRED: step" in text_of(error)
    assert stream_answers(channel, request_bytes)[0].error.reason == "FIELD_REQUIRED"


def test_oversize(channel: grpc.Channel) -> None:
    # The server of these tests takes 8 MiB.
    step = good_step()
    step.target_logits.inline_bytes = bytes(9 << 20)
    error = refused(channel, VERIFY, unary_request(step))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert stream_answers(channel, stream_request(good_step(), 1))[0].WhichOneof("outcome") == "result"


def test_nan_is_a_status_and_no_error(channel: grpc.Channel) -> None:
    step = good_step()
    logits = np.frombuffer(step.target_logits.inline_bytes, np.float32).reshape(5, -1).copy()
    logits[3, 2] = np.nan
    step.target_logits.inline_bytes = logits.tobytes()
    whole, broken = stream_answers(channel, stream_request(good_step(), 1), stream_request(step, 2))
    cu = whole.result.cu_tokens
    assert list(broken.result.status) == [pb.REQUEST_STATUS_OK, pb.REQUEST_STATUS_INVALID_LOGITS]
    assert list(broken.result.bad_row) == [-1, 0]
    assert broken.result.token_ids == whole.result.token_ids[: cu[1]]


def test_unknown_method_of_the_service(channel: grpc.Channel) -> None:
    error = refused(channel, "/sampler.v1.SamplerService/Nothing", b"")
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("name", ["OpenSession", "CloseSession", "RegisterRegion", "RegisterEvent", "ListRegions"])
def test_rpc_not_built(channel: grpc.Channel, name: str) -> None:
    error = refused(channel, f"/sampler.v1.SamplerService/{name}", b"")
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert text_of(error).startswith("NOT_IMPLEMENTED: ")


def test_no_id_in_a_message(channel: grpc.Channel) -> None:
    secret = b"swordfish" * 4
    step = good_step()
    step.session_id = secret
    error = refused(channel, VERIFY, unary_request(step))
    trailers = b"".join(v if isinstance(v, bytes) else v.encode() for _, v in error.trailing_metadata() or ())
    assert b"swordfish" not in text_of(error).encode() + trailers
