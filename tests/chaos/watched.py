"""A server under fault, and what is watched of it from outside: memory, files, its log, its answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil

from sampler_client.v1 import sampler_pb2 as pb
from tests.chaos.report import Report
from tests.service.serving import VERIFY, ServerProcess, call, call_stream, server_process, stream_request
from tests.service.serving import unary_request as unary
from tests.service.steps import good_step

MIB = 1 << 20
SETTLE_SECONDS = 5.0
"""How long closed connections may take to be noticed; on a socket of the host that is a matter of milliseconds."""


def told(result: pb.StepResult) -> bytes:
    """A result without its times: equal steps give equal bytes."""
    rest = pb.StepResult()
    rest.CopyFrom(result)
    rest.ClearField("timing")
    return rest.SerializeToString(deterministic=True)


@dataclass
class Watched:
    """A server, and where its log is."""

    server: ServerProcess
    log: Path

    @property
    def address(self) -> str:
        return self.server.address

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.server.process.pid)

    def rss(self) -> int:
        """Bytes of memory that the server holds."""
        return int(self.process.memory_info().rss)

    def files(self) -> int:
        """Files and sockets that the server holds open."""
        return int(self.process.num_fds())

    def wait_for_files(self, most: int, seconds: float = SETTLE_SECONDS) -> int:
        """Files still open once they are ``most``, or when the time is up."""
        until = time.monotonic() + seconds
        while (now := self.files()) > most and time.monotonic() < until:
            time.sleep(0.02)
        return now

    def answer(self) -> tuple[bytes, bytes]:
        """What the server says to a good step, unary and in a stream; times left out."""
        with grpc.insecure_channel(self.address) as channel:
            once = pb.VerifyResponse.FromString(call(channel, VERIFY, unary(good_step())))
            (streamed,) = call_stream(channel, iter([stream_request(good_step(), 1)]))
        return told(once.result), told(streamed.result)

    def check_end(self, report: Report) -> None:
        """End the server; it must end well and have had no fault of its own."""
        status = self.server.end()
        report.expect(status == 0, f"the server ended with status {status}")
        report.expect("Traceback" not in self.log.read_text(), "the server's log holds a traceback")


@contextmanager
def watched(directory: Path, *arguments: str, program: list[str] | None = None) -> Iterator[Watched]:
    """A server of its own on the CPU; ended with the block if it has not been before."""
    log = directory / "log"
    options = ("--listen", f"unix:{directory}/s.sock", "--backend", "cpu", *arguments)
    with server_process(*options, stderr=log, program=program) as server:
        yield Watched(server, log)
