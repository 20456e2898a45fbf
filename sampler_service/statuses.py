"""A refusal on the wire: as the status of a call, and as a StepError inside a stream."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from sampler_client.v1 import sampler_pb2 as pb
from sampler_service.errors import DOMAIN, Refusal

_MAX_TEXT: Final = 1000
"""Longest text sent. Status details travel in HTTP/2 trailers, which peers limit to 8 KiB in all."""

_DETAILS_KEY: Final = "grpc-status-details-bin"


async def abort(context: grpc.aio.ServicerContext[Any, Any], refusal: Refusal) -> NoReturn:
    """End the call with the refusal's code, text and details."""
    status = rpc_status(refusal)
    trailer = ((_DETAILS_KEY, status.SerializeToString()),)
    await context.abort(refusal.entry.code, status.message, trailing_metadata=trailer)
    raise AssertionError("abort returned")


def rpc_status(refusal: Refusal) -> status_pb2.Status:
    """The refusal as ``google.rpc.Status`` with ErrorInfo and, where they fit, BadRequest and RetryInfo."""
    info = error_details_pb2.ErrorInfo(reason=refusal.reason, domain=DOMAIN, metadata=_metadata(refusal))
    details: list[Message] = [info]
    if _is_field_violation(refusal):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=_field(refusal), description=_cut(refusal.message)
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if refusal.entry.retry_after_ms:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(refusal.entry.retry_after_ms)
        details.append(retry)
    return status_pb2.Status(
        code=_code(refusal), message=_cut(str(refusal)), details=[_packed(detail) for detail in details]
    )


def step_error(refusal: Refusal) -> pb.StepError:
    """The refusal as the answer to one step of a stream."""
    error = pb.StepError(
        code=_code(refusal),
        reason=refusal.reason,
        message=_cut(str(refusal)),
        metadata=_metadata(refusal),
        retry_delay_us=refusal.entry.retry_after_ms * 1000,
    )
    if _is_field_violation(refusal):
        error.field_violations.add(field=_field(refusal), description=_cut(refusal.message))
    return error


def _code(refusal: Refusal) -> int:
    number: int = refusal.entry.code.value[0]
    return number


def _is_field_violation(refusal: Refusal) -> bool:
    return refusal.field is not None and refusal.entry.code is grpc.StatusCode.INVALID_ARGUMENT


def _field(refusal: Refusal) -> str:
    return _cut(refusal.field or "")


def _metadata(refusal: Refusal) -> dict[str, str]:
    places = {"field": refusal.field, "request": refusal.request, "position": refusal.position}
    return {**{name: _cut(str(place)) for name, place in places.items() if place is not None}, **refusal.metadata}


def _packed(detail: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."
