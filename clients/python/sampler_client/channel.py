"""How both clients open a channel, and the names of the calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

MAX_ANSWER_BYTES: Final = 256 << 20
"""Largest answer that a client takes unless told otherwise, in bytes."""

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
