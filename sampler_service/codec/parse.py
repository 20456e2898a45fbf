"""Bytes to a message. gRPC hands the bytes over as they came, so that a malformed message is the client's mistake."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from sampler_service.codec.guard import check_count
from sampler_service.errors import Reason, Refusal, refuse

M = TypeVar("M", bound=Message)


def parse(kind: type[M], data: bytes) -> M:
    """The message that ``data`` encodes.

    Raises:
        Refusal: MALFORMED_MESSAGE or LIMIT_EXCEEDED.
    """
    check_count(kind, data)
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise malformed(kind, data) from error


def malformed(kind: type[Message], data: bytes) -> Refusal:
    """The refusal of bytes that are no message of this kind."""
    what = f"{len(data)} bytes are not a {kind.DESCRIPTOR.full_name}; they must be its protobuf encoding"
    return refuse(Reason.MALFORMED_MESSAGE, what)
