"""Bytes to a message. gRPC hands the bytes over as they came, so that a malformed message is the client's mistake."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from sampler_service.codec.lift import lift
from sampler_service.codec.tensors import TensorReader
from sampler_service.errors import Reason, refuse

M = TypeVar("M", bound=Message)


def parse(kind: type[M], data: bytes) -> tuple[M, TensorReader]:
    """The message that ``data`` encodes, and what reads its tensors: their own bytes may no longer be in it.

    Raises:
        Refusal: MALFORMED_MESSAGE or LIMIT_EXCEEDED.
    """
    lifted = lift(kind, data)
    rest, payloads = (data, None) if lifted is None else lifted
    try:
        return kind.FromString(rest), TensorReader(payloads, len(rest))
    except DecodeError as error:
        what = f"{len(data)} bytes are not a {kind.DESCRIPTOR.full_name}; they must be its protobuf encoding"
        raise refuse(Reason.MALFORMED_MESSAGE, what) from error
