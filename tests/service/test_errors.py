"""The table of errors: complete, and the page is what the table says."""

from __future__ import annotations

from google.rpc import error_details_pb2

from sampler_kernels.refusal import Reason as CoreReason
from sampler_kernels.refusal import StepRefused
from sampler_service.errors import TABLE, Reason, Refusal, of_core
from sampler_service.errors_page import render
from sampler_service.statuses import rpc_status, step_error
from tests.service.serving import ROOT


def test_every_reason_is_in_the_table_and_no_other() -> None:
    assert set(TABLE) == {reason.value for reason in (*Reason, *CoreReason)}


def test_codes_of_the_core_are_those_of_the_table() -> None:
    for reason in CoreReason:
        assert TABLE[reason.value].code.name == StepRefused(reason, "").code


def test_the_page_is_the_table() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    assert page == render(), "run: python -m sampler_service.errors_page > docs/errors.md"


def test_a_refusal_says_the_same_in_a_status_and_in_a_stream() -> None:
    core = StepRefused(CoreReason.PARAMETER_OUT_OF_RANGE, "request 3: top_p is 7", "top_p", 3, 1)
    status, error = rpc_status(of_core(core)), step_error(of_core(core))
    assert (status.code, status.message) == (error.code, error.message)
    info, violations = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(violations)
    assert info.reason == error.reason == "PARAMETER_OUT_OF_RANGE"
    assert dict(info.metadata) == dict(error.metadata) == {"field": "top_p", "request": "3", "position": "1"}
    assert [(v.field, v.description) for v in violations.field_violations] == [
        (v.field, v.description) for v in error.field_violations
    ]


def test_long_texts_fit_the_trailers() -> None:
    for reason in TABLE:
        status = rpc_status(Refusal(reason, "x" * 100_000, "f" * 100_000, 1, 2))
        # Peers take 8 KiB of trailers; base64 makes four bytes of three, and the text travels beside the details.
        assert len(status.SerializeToString()) * 4 / 3 + len(status.message) < 8192
