"""Clients that are there and say nothing more, stopped in full swing or silent from the start: their place is freed."""

from __future__ import annotations

import queue
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import grpc

from tests.chaos.flood import STREAMS, flooding
from tests.chaos.report import Report
from tests.chaos.watched import Watched, watched
from tests.service.serving import call_stream, stream_request
from tests.service.steps import good_step

KEEPALIVE_SECONDS = 1.5
GIVEN_UP_SECONDS = KEEPALIVE_SECONDS * 4 / 3
"""The wait for a sign of life, and a third of it for the answer to the question."""

DRAIN_SECONDS = 2.0
GRACE_SECONDS = 3.0
"""After the drain: two for gRPC's end and one for the device thread."""

SLACK_SECONDS = 3.0
"""For gRPC's timers and a busy machine."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The beginning of an HTTP/2 connection: the client's preface and empty SETTINGS."""

OPENINGS = (b"", PREFACE[:10], PREFACE)


def halfopen(report: Report, directory: Path, *, clients: int) -> None:
    """Stop ``clients`` processes, and leave as many silent connections of each kind open."""
    limits = ("--max-streams", str(STREAMS), "--drain-seconds", str(DRAIN_SECONDS))
    options = ("--keepalive-seconds", str(KEEPALIVE_SECONDS), *limits)
    with watched(directory, *options) as server:
        before, files = server.answer(), server.files()
        with ExitStack() as held:
            for _ in range(clients):
                for opening in OPENINGS:
                    held.enter_context(_silent(server, opening))
                    report.done["silent connections"] += 1
                client = held.enter_context(flooding(server.address))
                client.send_signal(signal.SIGSTOP)
                report.done["clients stopped"] += 1
                report.tick()
                _wait_until_free(report, server)
            # gRPC cannot close a connection to which it cannot write, so each stopped client may keep one.
            # The silent ones are all still open on our side.
            left = server.wait_for_files(files, GIVEN_UP_SECONDS + SLACK_SECONDS) - files
            report.at_most("files gained", left, clients, "")
            report.expect(server.answer() == before, "a good step has another answer than before")
        left = server.wait_for_files(files) - files
        report.at_most("files gained, once they are gone", left, 0, "")
        _end_beside_one(report, server)


def _wait_until_free(report: Report, server: Watched) -> None:
    started = time.monotonic()
    taken = not _all_free(server)
    report.done["clients stopped with all streams"] += taken
    most = GIVEN_UP_SECONDS * 5 / 4 + SLACK_SECONDS
    while taken and time.monotonic() - started < 2 * most:
        time.sleep(0.1)
        taken = not _all_free(server)
    report.at_most("until their streams were freed", time.monotonic() - started, most, "s")
    report.expect(not taken, "the streams of a stopped client were not freed")


def _end_beside_one(report: Report, server: Watched) -> None:
    """A server ends although a client takes nothing."""
    with flooding(server.address) as client:
        client.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        server.check_end(report)
        most = DRAIN_SECONDS + GRACE_SECONDS + SLACK_SECONDS
        report.at_most("until the server had ended", time.monotonic() - started, most, "s")


def _silent(server: Watched, opening: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(server.address.removeprefix("unix:"))
    connection.sendall(opening)
    return connection


def _all_free(server: Watched) -> bool:
    """Whether as many streams as the server admits can be open at the same time."""
    with grpc.insecure_channel(server.address) as channel, ExitStack() as held:
        for _ in range(STREAMS):
            messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
            messages.put(stream_request(good_step(), 1))
            held.callback(messages.put, b"")
            try:
                next(call_stream(channel, iter(messages.get, b"")))
            except grpc.RpcError as error:
                if "TOO_MANY_STREAMS: " in str(error):
                    return False
                raise
    return True
