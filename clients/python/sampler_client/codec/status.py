"""Refusals as they come over the wire -> typed errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from sampler_client.errors import FieldViolation, SamplerError, ServerFault, error_class
from sampler_client.v1 import sampler_pb2 as pb

_DETAILS_KEY: Final = "grpc-status-details-bin"
_CODE_NAMES: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}


def status_error(status: status_pb2.Status) -> SamplerError:
    """The error that a ``google.rpc.Status`` stands for, with the reason and fields of its details."""
    reason, metadata, fields, delay = "", {}, [], None
    info, request, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Unpack(info):
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Unpack(request):
            fields = [FieldViolation(entry.field, entry.description) for entry in request.field_violations]
        elif detail.Unpack(retry):
            delay = retry.retry_delay.seconds + retry.retry_delay.nanos * 1e-9
    code = _CODE_NAMES.get(status.code, "UNKNOWN")
    return error_class(code)(
        status.message, code=code, reason=reason, fields=fields, metadata=metadata, retry_delay=delay
    )


def step_error(message: pb.StepError) -> SamplerError:
    """The error that a stream's ``StepError`` stands for: the same as the unary call would have raised."""
    code = _CODE_NAMES.get(message.code, "UNKNOWN")
    return error_class(code)(
        message.message,
        code=code,
        reason=message.reason,
        fields=[FieldViolation(entry.field, entry.description) for entry in message.field_violations],
        metadata=message.metadata,
        retry_delay=message.retry_delay_us * 1e-6 if message.retry_delay_us else None,
    )


def call_error(error: grpc.RpcError) -> SamplerError:
    """The error that a failed call stands for.

    Where gRPC itself refused (message too large, unknown method, no connection, deadline) there are no details, and
    the status code alone decides.

    Args:
        error: As a call raised it, of ``grpc`` or of ``grpc.aio``: both know their code, text and trailers.
    """
    if not isinstance(error, grpc.Call | grpc.aio.AioRpcError):
        return error_class("UNKNOWN")(str(error), code="UNKNOWN")
    status = _details(error.trailing_metadata() or ())
    if status is not None:
        return status_error(status)
    code = error.code().name
    return error_class(code)(error.details() or code, code=code)


def unreadable(cause: object) -> ServerFault:
    """The error that an answer stands for which cannot be read."""
    return ServerFault(f"the server's answer cannot be read: {cause}", code="INTERNAL", reason="UNREADABLE_ANSWER")


def _details(trailers: Iterable[tuple[str, str | bytes]]) -> status_pb2.Status | None:
    """The status that the server attached; None where there is none or it cannot be read."""
    for key, value in trailers:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                return None
    return None
