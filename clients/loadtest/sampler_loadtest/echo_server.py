"""The floor: a gRPC server of the service's kind whose handlers return one canned answer and look at nothing.

    python echo_server.py ADDRESS ANSWER_BYTES

It prints ``listening on ADDRESS`` once it serves, and ends when its standard input does, so that it never outlives
whoever started it. It needs nothing but grpcio and is run as a file, from wherever this package lies.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import grpc

SERVICE: Final = "sampler.v1.SamplerService"

OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_receive_message_length", 256 << 20),
    ("grpc.max_send_message_length", 256 << 20),
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.server_handshake_timeout_ms", 40_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
)
"""Those of the service with its default limits; a test compares them."""

Context = grpc.aio.ServicerContext[bytes, bytes]


def handler(answer: bytes) -> grpc.GenericRpcHandler:
    """Handlers of the two calls that take a step, under the service's own names."""

    async def unary(_data: bytes, _context: Context) -> bytes:
        return answer

    async def stream(_requests: object, context: Context) -> None:
        while isinstance(await context.read(), bytes):
            await context.write(answer)

    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Verify": grpc.unary_unary_rpc_method_handler(unary),
        "VerifyStream": grpc.stream_stream_rpc_method_handler(stream),
    }
    return grpc.method_handlers_generic_handler(SERVICE, methods)


async def serve(address: str, answer_bytes: int) -> None:
    """Serve until standard input ends."""
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((handler(bytes(answer_bytes)),))
    port = server.add_insecure_port(address)
    await server.start()
    bound = address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
    sys.stdout.write(f"listening on {bound}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
