"""Response messages -> ``StepResult``: columns become numpy arrays, tables of bytes are seen where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from sampler_client.codec.params import MODES
from sampler_client.codec.status import step_error, unreadable
from sampler_client.errors import SamplerError
from sampler_client.result import ModeLogprobs, StepResult, Timing
from sampler_client.v1 import sampler_pb2 as pb

_MODES = {number: mode for mode, number in MODES.items()}


def decode_verify_response(data: bytes) -> StepResult:
    """The result in a serialized ``VerifyResponse``.

    Raises:
        ServerFault: The bytes are no such message.
    """
    try:
        return decode_result(pb.VerifyResponse.FromString(data).result)
    except DecodeError as error:
        raise unreadable(error) from error


def decode_stream_response(data: bytes) -> tuple[int, StepResult | SamplerError]:
    """The step id and the outcome in a serialized ``VerifyStreamResponse``; a refusal is returned, not raised.

    Raises:
        ServerFault: The bytes are no such message, or it holds no outcome.
    """
    try:
        message = pb.VerifyStreamResponse.FromString(data)
    except DecodeError as error:
        raise unreadable(error) from error
    kind = message.WhichOneof("outcome")
    if kind == "error":
        return message.step_id, step_error(message.error)
    if kind is None:
        raise unreadable("neither a result nor an error in it")
    return message.step_id, decode_result(message.result)


def decode_result(message: pb.StepResult) -> StepResult:
    """A result message as numpy columns. Modes that this client does not know are left out."""
    times = message.timing
    return StepResult(
        source=_Columns(message),
        logprobs={
            _MODES[entry.mode]: ModeLogprobs(_Columns(entry)) for entry in message.logprobs if entry.mode in _MODES
        },
        timing=Timing(times.queue_us, times.upload_us, times.device_us, times.download_us, times.total_us),
        backend=message.backend,
        version=message.version,
    )


class _Columns:
    """Repeated fields and byte tables of one message."""

    __slots__ = ("_message",)

    def __init__(self, message: pb.StepResult | pb.LogprobsResult) -> None:
        self._message = message

    def column(self, name: str, dtype: type[np.generic]) -> NDArray[Any]:
        values = getattr(self._message, name)
        return np.fromiter(values, dtype, len(values))

    def table(self, name: str, dtype: type[np.generic]) -> NDArray[Any]:
        return np.frombuffer(getattr(self._message, name), np.dtype(dtype).newbyteorder("<"))
