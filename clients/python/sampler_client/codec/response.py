"""Response messages -> ``StepResult``: columns become numpy arrays, tables of bytes are seen where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from sampler_client.codec.params import MODES
from sampler_client.codec.status import step_error, unreadable
from sampler_client.errors import SamplerError
from sampler_client.result import EntriesByToken, ModeLogprobs, StepResult, Timing
from sampler_client.v1 import sampler_pb2 as pb

_MODES = {number: mode for mode, number in MODES.items()}
_INT32_LE = np.dtype("<i4")
_FLOAT32_LE = np.dtype("<f4")


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
    asked = message.cu_acceptance_probabilities
    times = message.timing
    return StepResult(
        token_ids=_column(message.token_ids, np.int32),
        cu_tokens=_column(message.cu_tokens, np.int32),
        num_accepted=_column(message.num_accepted, np.int32),
        status=_column(message.status, np.int32),
        seeds=_column(message.seed, np.uint64),
        finish_reason=_column(message.finish_reason, np.int32),
        lossy=_column(message.lossy, np.bool_),
        bad_row=_column(message.bad_row, np.int32),
        logprobs={_MODES[entry.mode]: _mode(entry) for entry in message.logprobs if entry.mode in _MODES},
        acceptance_probabilities=_column(message.acceptance_probabilities, np.float64),
        cu_acceptance_probabilities=_column(asked, np.int32) if asked else None,
        timing=Timing(times.queue_us, times.upload_us, times.device_us, times.download_us, times.total_us),
        backend=message.backend,
        version=message.version,
    )


def _mode(entry: pb.LogprobsResult) -> ModeLogprobs:
    tokens = len(entry.values)
    return ModeLogprobs(
        values=_column(entry.values, np.float32),
        ranks=_column(entry.ranks, np.int32) if entry.ranks else None,
        cumulative=_column(entry.cumulative, np.float64) if entry.cumulative else None,
        top=_entries(entry.cu_top, entry.top_token_ids, entry.top_values, tokens),
        chosen=_entries(entry.cu_chosen, entry.chosen_token_ids, entry.chosen_values, tokens),
    )


def _entries(cu: Any, token_ids: bytes, values: bytes, tokens: int) -> EntriesByToken:  # noqa: ANN401  (repeated field)
    return EntriesByToken(
        cu=_column(cu, np.int32) if cu else np.zeros(tokens + 1, dtype=np.int32),
        token_ids=np.frombuffer(token_ids, dtype=_INT32_LE),
        values=np.frombuffer(values, dtype=_FLOAT32_LE),
    )


def _column(values: Any, dtype: type[np.generic]) -> NDArray[Any]:  # noqa: ANN401  (a repeated field of any type)
    return np.fromiter(values, dtype=dtype, count=len(values))
