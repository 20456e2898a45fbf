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

LONGEST_RECONNECT_MS: Final = 1000
"""Longest wait between two looks for a server that is not there: one that has started again is found within it."""

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
        # After a time without a server gRPC would look for it every two minutes only.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", LONGEST_RECONNECT_MS),
        *extra,
    ]


def as_is(data: bytes) -> bytes:
    """Bytes in, bytes out: messages are built and read where the caller is, not in gRPC's threads."""
    return data
