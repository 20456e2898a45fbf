"""Sessions, events and output regions in a step: checked as far as they can be, and not built yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels.refusal import Reason as CoreReason
from sampler_service.codec.columns import check_count, check_size
from sampler_service.codec.tensors import read_tensor
from sampler_service.errors import Reason, refuse

_I32, _I64, _F32, _F64 = ((dtype,) for dtype in (pb.DTYPE_INT32, pb.DTYPE_INT64, pb.DTYPE_FLOAT32, pb.DTYPE_FLOAT64))

_COLUMNS: Final = {
    "num_tokens": _I32,
    "num_accepted": _I32,
    "status": _I32,
    "next_position": _I64,
    "finish_reason": _I32,
    "bad_row": _I32,
    "seed": _I64,
}
_MATRICES: Final = {"token_ids": _I32, "acceptance_probabilities": _F64}
_MODE_TENSORS: Final = {
    "values": (_F32, 2),
    "ranks": (_I32, 2),
    "cumulative": (_F64, 1),
    "top_token_ids": (_I32, 2),
    "top_values": (_F32, 2),
    "chosen_values": (_F32, 2),
}


def unbuilt(message: pb.Step, batch: int, miss: Callable[[str, str], None]) -> None:
    """Check what is not built yet, then note it.

    Raises:
        Refusal: Ids of the wrong length, outputs that are no region, a reply that lacks what it needs.
    """
    ids = message.session_id or message.wait_event_id or message.signal_event_id
    if not (ids or message.reply_when or message.HasField("outputs")):
        return
    named = False
    for field, length in (("session_id", 32), ("wait_event_id", 16), ("signal_event_id", 16)):
        size = len(getattr(message, field))
        if size not in (0, length):
            # The id itself stays out of the message: whoever holds a session's id acts for it.
            what = f"{field} has {size} bytes; it must have {length}, as the server gave it"
            raise refuse(Reason.ID_LENGTH_INVALID, what, field=field)
        named |= size > 0 and field != "session_id"
    if message.reply_when not in pb.ReplyWhen.values():
        what = f"reply_when is {message.reply_when}, which the contract does not list"
        raise refuse(Reason.ENUM_UNKNOWN, what, field="reply_when")
    if message.HasField("outputs"):
        _check_outputs(message.outputs, batch)
    if message.reply_when == pb.REPLY_WHEN_ENQUEUED and not (message.signal_event_id and message.HasField("outputs")):
        what = "reply_when is REPLY_WHEN_ENQUEUED; it needs signal_event_id and outputs"
        raise refuse(CoreReason.PARAMETER_REQUIRED, what, field="reply_when")
    if named and not message.session_id:
        what = "session_id is missing; a step that names an event must carry its session"
        raise refuse(Reason.FIELD_REQUIRED, what, field="session_id")
    if message.session_id:
        miss("sessions are", "session_id")
    if named:
        miss("events are", "wait_event_id")
    if message.HasField("outputs"):
        miss("output regions are", "outputs")


def _check_outputs(outputs: pb.OutputRegions, batch: int) -> None:
    for name, dtypes in _COLUMNS.items():
        _check_output(outputs, name, "outputs", dtypes, 1, batch)
    for name, dtypes in _MATRICES.items():
        _check_output(outputs, name, "outputs", dtypes, 2, batch)
    check_size(len(outputs.logprobs), "outputs.logprobs", len(pb.LogprobsMode.values()) - 1)
    for i, mode in enumerate(outputs.logprobs):
        where = f"outputs.logprobs[{i}]"
        if mode.mode not in pb.LogprobsMode.values():
            what = f"{where}.mode is {mode.mode}, which the contract does not list"
            raise refuse(Reason.ENUM_UNKNOWN, what, field=f"{where}.mode")
        for name, (dtypes, ndim) in _MODE_TENSORS.items():
            _check_output(mode, name, where, dtypes, ndim, None if "top" in name or "chosen" in name else batch)


def _check_output(
    holder: pb.OutputRegions | pb.LogprobsOutput,
    name: str,
    where: str,
    dtypes: tuple[int, ...],
    ndim: int,
    rows: int | None,
) -> None:
    if not holder.HasField(name):  # type: ignore[arg-type]
        return
    field = f"{where}.{name}"
    tensor = read_tensor(getattr(holder, name), field, dtypes, (ndim,), max_columns=1 << 20)
    if not tensor.in_region:
        what = f"{field} does not lie in a region; results are written to registered memory only"
        raise refuse(Reason.FIELD_REQUIRED, what, field=f"{field}.region")
    if rows is not None:
        check_count(tensor.data.shape[0], field, rows, "one for each request")
