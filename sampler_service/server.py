"""The server from start to end: bind, warm, serve, drain.

The server is asynchronous. With an empty handler (grpcio 1.85, 2 cores shared with other work, unix socket, one
message of 1 kB at a time) both kinds of gRPC server are equal: median 141-147 us a message for the one with threads,
145-146 us for the asynchronous one, and 4,500-6,900 against 4,700-5,800 messages a second for 8 clients, run against
run. With a hand-over to a device thread and back, which a step needs, the asynchronous one takes less processor time,
124 us against 154 us a message, because an event loop is woken once where threads hand over twice. It also holds any
number of open streams without a thread for each, and a health watcher occupies none. uvloop made no difference.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from typing import Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from sampler_service.config import Settings
from sampler_service.dispatch import Dispatcher
from sampler_service.engine import Engine
from sampler_service.info import server_info
from sampler_service.lifecycle import Lifecycle
from sampler_service.limits import Limits
from sampler_service.listen import bind_all
from sampler_service.servicer import SERVICE, Servicer
from sampler_service.worker import Worker

_log: Final = logging.getLogger(__name__)

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING

_LAST_GRACE: Final = 1.0
"""Seconds that calls get to end after the drain; those of health and reflection are not waited for before."""


def channel_arguments(limits: Limits, keepalive_seconds: float) -> list[tuple[str, int]]:
    """Options of the gRPC server, which ignores those that it does not know."""
    ask_ms = int(keepalive_seconds * 1000)
    return [
        ("grpc.max_receive_message_length", limits.max_receive_message_bytes),
        ("grpc.max_send_message_length", limits.max_send_message_bytes),
        # On by default: a second server on the port would bind, and get half of the calls.
        ("grpc.so_reuseport", 0),
        # A client that was stopped, or whose host vanished, leaves a connection that never ends, with its streams.
        ("grpc.keepalive_time_ms", ask_ms),
        ("grpc.keepalive_timeout_ms", ask_ms // 3),
        # The same for one that connects and never says anything.
        ("grpc.server_handshake_timeout_ms", ask_ms + ask_ms // 3),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


async def serve(settings: Settings, engine: Engine, announce: Callable[[str], None]) -> bool:
    """Serve until SIGTERM or SIGINT, then answer what was received and return.

    Args:
        settings: What holds.
        engine: Runs the steps.
        announce: Called with each address once steps are served there.

    Returns:
        Whether the device thread has ended too. If it has not, a step hangs, and only the end of the process ends it.

    Raises:
        CannotListen: An address cannot be had.
        Refusal: The backend does not work here.
    """
    limits = settings.limits
    worker, lifecycle = Worker(), Lifecycle()
    dispatcher = Dispatcher(engine, worker, limits)
    server = grpc.aio.server(options=channel_arguments(limits, settings.keepalive_seconds))
    servicer = Servicer(info=server_info(engine, limits), limits=limits, dispatcher=dispatcher, lifecycle=lifecycle)
    server.add_generic_rpc_handlers((servicer.handler(),))
    probes = health.aio.HealthServicer()
    await _set_health(probes, _NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(probes, server)
    if settings.reflection:
        _reflect(server)
    listeners = bind_all(server, settings.listen, allow_remote=settings.allow_remote)
    try:
        signals = _signals()
        worker.start()
        await server.start()
        await dispatcher.warm()
        # What is loaded by now stays: the collector need not look through torch again and again while steps wait.
        gc.collect()
        gc.freeze()
        await _set_health(probes, _SERVING)
        for address in listeners.addresses:
            announce(address)
        _log.info("serving with backend %s on %s", engine.backend, ", ".join(listeners.addresses))
        await signals.get()
        await _drain(settings, lifecycle, probes, signals)
    finally:
        await server.stop(_LAST_GRACE)
        listeners.close()
        stopped = await asyncio.to_thread(worker.stop, _LAST_GRACE)
    if not stopped:
        _log.warning("a step is still running; leaving it")
    _log.info("ended")
    return stopped


async def _drain(
    settings: Settings, lifecycle: Lifecycle, probes: health.aio.HealthServicer, signals: asyncio.Queue[str]
) -> None:
    """Refuse what comes, answer what has come; a second signal or the time limit cuts it short."""
    _log.info("draining for at most %g seconds", settings.drain_seconds)
    lifecycle.start_drain()
    await probes.enter_graceful_shutdown()
    idle = asyncio.create_task(lifecycle.idle())
    again = asyncio.create_task(signals.get())
    done, _ = await asyncio.wait({idle, again}, timeout=settings.drain_seconds, return_when=asyncio.FIRST_COMPLETED)
    idle.cancel()
    again.cancel()
    if idle not in done:
        _log.warning("calls are still open; ending them")


async def _set_health(probes: health.aio.HealthServicer, status: int) -> None:
    for name in (health.OVERALL_HEALTH, SERVICE.full_name):
        await probes.set(name, status)


def _signals() -> asyncio.Queue[str]:
    """SIGTERM and SIGINT as they come."""
    queue: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, queue.put_nowait, one.name)
    return queue


def _reflect(server: grpc.aio.Server) -> None:
    # Imported only where it is wanted: a server works without the package.
    from grpc_reflection.v1alpha import reflection  # noqa: PLC0415

    names = (SERVICE.full_name, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
