"""What both clients share: defaults, the options of a channel, the names of the calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

MAX_ANSWER_BYTES: Final = 256 << 20
"""Largest answer that a client takes unless told otherwise, in bytes."""

DEFAULT_TIMEOUT: Final = 30.0
"""Seconds within which a call must end unless told otherwise, retries included."""

MAX_IN_FLIGHT: Final = 16
"""Steps that a session sends ahead of their answers at most; servers read 8 of them unless configured otherwise."""

ChannelOptions = Sequence[tuple[str, Any]]

_SERVICE: Final = "/sampler.v1.SamplerService"
VERIFY: Final = f"{_SERVICE}/Verify"
VERIFY_STREAM: Final = f"{_SERVICE}/VerifyStream"
GET_SERVER_INFO: Final = f"{_SERVICE}/GetServerInfo"


def channel_options(max_answer_bytes: int, extra: ChannelOptions) -> list[tuple[str, Any]]:
    """Options of a channel: steps of any size may be sent (the server's limit decides), ``extra`` has the last word."""
    return [
        ("grpc.max_send_message_length", -1),
        ("grpc.max_receive_message_length", max_answer_bytes),
        *extra,
    ]


def as_is(data: bytes) -> bytes:
    """Bytes in, bytes out: messages are built and read where the caller is, not in gRPC's threads."""
    return data
