"""Sessions, events and output regions in a step: checked as far as they can be, and not built yet."""

from __future__ import annotations

from typing import Final

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels.refusal import Reason as CoreReason
from sampler_service.codec.columns import check_count, check_size
from sampler_service.codec.reading import Reading
from sampler_service.errors import Reason, refuse

_I32, _I64, _F32, _F64 = ((dtype,) for dtype in (pb.DTYPE_INT32, pb.DTYPE_INT64, pb.DTYPE_FLOAT32, pb.DTYPE_FLOAT64))

# Name of each output -> its dtype, dimensions, and whether its rows are the requests.
_OUTPUTS: Final = {
    "token_ids": (_I32, 2, True),
    "num_tokens": (_I32, 1, True),
    "num_accepted": (_I32, 1, True),
    "status": (_I32, 1, True),
    "next_position": (_I64, 1, True),
    "finish_reason": (_I32, 1, True),
    "bad_row": (_I32, 1, True),
    "seed": (_I64, 1, True),
    "acceptance_probabilities": (_F64, 2, True),
}
_MODE_OUTPUTS: Final = {
    "values": (_F32, 2, True),
    "ranks": (_I32, 2, True),
    "cumulative": (_F64, 1, True),
    "top_token_ids": (_I32, 2, False),
    "top_values": (_F32, 2, False),
    "chosen_values": (_F32, 2, False),
}


def check_unbuilt(reading: Reading) -> None:
    """Check what is not built yet, then note it.

    Raises:
        Refusal: Ids of the wrong length, outputs that are no region, a reply that lacks what it needs.
    """
    message = reading.message
    ids = message.session_id or message.wait_event_id or message.signal_event_id
    if not (ids or message.reply_when or message.HasField("outputs")):
        return
    for field, length in (("session_id", 32), ("wait_event_id", 16), ("signal_event_id", 16)):
        size = len(getattr(message, field))
        if size not in (0, length):
            # The id itself stays out of the message: whoever holds a session's id acts for it.
            what = f"{field} has {size} bytes; it must have {length}, as the server gave it"
            raise refuse(Reason.ID_LENGTH_INVALID, what, field=field)
    if message.HasField("outputs"):
        _check_outputs(reading, message.outputs)
    _check_reply(message)
    events = bool(message.wait_event_id or message.signal_event_id)
    if events and not message.session_id:
        what = "session_id is missing; a step that names an event must carry its session"
        raise refuse(Reason.FIELD_REQUIRED, what, field="session_id")
    if message.session_id:
        reading.miss("sessions are", "session_id")
    if message.HasField("outputs"):
        reading.miss("output regions are", "outputs")


def _check_reply(message: pb.Step) -> None:
    if message.reply_when not in pb.ReplyWhen.values():
        what = f"reply_when is {message.reply_when}, which the contract does not list"
        raise refuse(Reason.ENUM_UNKNOWN, what, field="reply_when")
    if message.reply_when == pb.REPLY_WHEN_ENQUEUED and not (message.signal_event_id and message.HasField("outputs")):
        what = "reply_when is REPLY_WHEN_ENQUEUED; it needs signal_event_id and outputs"
        raise refuse(CoreReason.PARAMETER_REQUIRED, what, field="reply_when")


def _check_outputs(reading: Reading, outputs: pb.OutputRegions) -> None:
    for name, (dtypes, ndim, by_request) in _OUTPUTS.items():
        if outputs.HasField(name):  # type: ignore[arg-type]  # any of the names above
            _check_output(reading, getattr(outputs, name), f"outputs.{name}", dtypes, ndim, by_request=by_request)
    check_size(len(outputs.logprobs), "outputs.logprobs", len(pb.LogprobsMode.values()) - 1)
    for i, one in enumerate(outputs.logprobs):
        where = f"outputs.logprobs[{i}]"
        if one.mode not in pb.LogprobsMode.values():
            what = f"{where}.mode is {one.mode}, which the contract does not list"
            raise refuse(Reason.ENUM_UNKNOWN, what, field=f"{where}.mode")
        for name, (dtypes, ndim, by_request) in _MODE_OUTPUTS.items():
            if one.HasField(name):  # type: ignore[arg-type]  # any of the names above
                _check_output(reading, getattr(one, name), f"{where}.{name}", dtypes, ndim, by_request=by_request)


def _check_output(
    reading: Reading, message: pb.Tensor, field: str, dtypes: tuple[int, ...], ndim: int, *, by_request: bool
) -> None:
    tensor = reading.output(message, field, dtypes, ndim)
    if by_request:
        check_count(tensor.data.shape[0], field, reading.batch, "one for each request")
