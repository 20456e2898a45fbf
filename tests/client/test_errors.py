"""A refusal keeps its code, reason, place and delay on its way into a Python exception."""

from __future__ import annotations

import pickle

import grpc
import pytest
from google.rpc import status_pb2

from sampler_client import FieldViolation, InvalidStep, SamplerError, ServerFault, Unavailable
from sampler_client.codec.status import call_error, status_error, step_error
from sampler_client.errors import error_class
from sampler_client.v1 import sampler_pb2 as pb
from tests.client.fakes import in_band, refusal

INVALID = refusal(grpc.StatusCode.INVALID_ARGUMENT, "TOKEN_ID_OUT_OF_RANGE", "9 is too large", field="draft_token_ids")


def test_status_and_step_error_say_the_same() -> None:
    first, second = status_error(INVALID), step_error(in_band(INVALID))
    assert type(first) is type(second) is InvalidStep
    assert first.__dict__ == second.__dict__
    assert first.code == "INVALID_ARGUMENT"
    assert first.reason == "TOKEN_ID_OUT_OF_RANGE"
    assert first.message == "TOKEN_ID_OUT_OF_RANGE: 9 is too large"
    assert first.fields == (FieldViolation("draft_token_ids", "9 is too large"),)
    assert first.metadata == {"request": "0"}
    assert first.retry_delay is None


def test_retry_delay_is_in_seconds() -> None:
    status = refusal(grpc.StatusCode.UNAVAILABLE, "DRAINING", retry_ms=1500)
    assert status_error(status).retry_delay == step_error(in_band(status)).retry_delay == 1.5
    assert isinstance(status_error(status), Unavailable)


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK])
def test_every_code_has_a_class(code: grpc.StatusCode) -> None:
    error = status_error(status_pb2.Status(code=code.value[0], message="text"))
    assert type(error) is error_class(code.name)
    assert (error.code, error.reason) == (code.name, code.name)


def test_code_of_a_newer_server() -> None:
    assert isinstance(step_error(pb.StepError(code=99)), ServerFault)


def test_text_names_code_and_reason_once() -> None:
    assert str(status_error(INVALID)) == "INVALID_ARGUMENT: TOKEN_ID_OUT_OF_RANGE: 9 is too large"
    assert str(Unavailable("no connection", code="UNAVAILABLE")) == "UNAVAILABLE: no connection"
    assert str(SamplerError("text", code="ABORTED", reason="WHY")) == "ABORTED: WHY: text"


def test_errors_can_be_pickled() -> None:
    error = status_error(INVALID)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is InvalidStep
    assert again.__dict__ == error.__dict__
    assert str(again) == str(error)


def test_failure_without_a_code() -> None:
    assert isinstance(call_error(grpc.RpcError("strange")), ServerFault)
