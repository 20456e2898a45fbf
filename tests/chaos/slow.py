"""Clients that send and never read: bounded in what they make the server hold, and in nobody else's way."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np

from sampler_client.v1 import sampler_pb2 as pb
from tests.chaos.report import Report
from tests.chaos.watched import MIB, watched
from tests.service.serving import VERIFY_STREAM, as_is, call_stream, stream_request
from tests.service.steps import good_step, tensor

READ_AHEAD = 8
ROWS, COLUMNS, TOP = 128, 512, 256
REQUEST_BYTES = ROWS * COLUMNS * 4
ANSWER_BYTES = ROWS * TOP * 8
"""Of the top logprobs of every row; the rest of an answer is little beside them."""

WINDOW_BYTES = 8 * MIB
"""What gRPC itself holds of a stream each way. It lets its windows grow with the traffic; 4 MiB were seen here."""

STALLED_SECONDS = 1.0
"""Without a further message taken: then the server has stopped reading."""

SLOWER = 3.0
"""How much longer the others' steps may take. Whoever is held back costs the device nothing, so it should be 1; the
rest is for other work on the machine."""

STEPS = 200


@dataclass
class Deaf:
    """A stream that sends as long as the server takes it, and reads nothing."""

    address: str
    sent: int = 0
    last: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        # A connection of its own: flow control is shared on one.
        self.channel = grpc.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.ended = threading.Event()
        self.call = self.channel.stream_stream(VERIFY_STREAM, as_is, as_is)(self._requests())

    def _requests(self) -> Iterator[bytes]:
        request = stream_request(wide_step(), 1)
        while not self.ended.is_set():
            self.sent += 1
            self.last = time.monotonic()
            yield request

    def close(self) -> None:
        self.ended.set()
        self.call.cancel()
        self.channel.close()


def wide_step() -> pb.Step:
    """A step of a quarter of a MiB whose answer has as much."""
    return pb.Step(
        target_logits=tensor(np.zeros((ROWS, COLUMNS), np.float32), pb.DTYPE_FLOAT32),
        draft_lengths=[0] * ROWS,
        params=[pb.SamplingParams(top_logprobs=TOP)],
        seeds=[1] * ROWS,
        positions=[1] * ROWS,
    )


def slow(report: Report, directory: Path, *, clients: int) -> None:
    """Let ``clients`` streams go deaf, and measure the server and somebody else."""
    with watched(directory, "--max-read-ahead", str(READ_AHEAD)) as server:
        before, files = server.answer(), server.files()
        # One deaf client first: what a step of this size needs once is not a matter of how many there are.
        warm = Deaf(server.address)
        _wait_until_stalled([warm])
        warm.close()
        server.wait_for_files(files)
        alone, memory = _median_seconds(server.address), server.rss()
        deaf = [Deaf(server.address) for _ in range(clients)]
        _wait_until_stalled(deaf)
        for one in deaf:
            report.tick()
            report.done["deaf streams"] += 1
            report.done["messages taken from them"] += one.sent
        # It can hold what it took, and the answers to that, and nothing else.
        taken = sum(one.sent for one in deaf) * (REQUEST_BYTES + ANSWER_BYTES)
        report.at_most("memory held for them", (server.rss() - memory) / MIB, taken / MIB, "MiB")
        # Read ahead, one in the hands of either side's code, and in gRPC's windows.
        most = READ_AHEAD + 2 + WINDOW_BYTES / REQUEST_BYTES + WINDOW_BYTES / ANSWER_BYTES
        report.at_most("messages taken from one", max(one.sent for one in deaf), most, "")
        report.at_most("steps of others, slower by", _median_seconds(server.address) / alone, SLOWER, "times")
        report.expect(server.answer() == before, "a good step has another answer than before")
        for one in deaf:
            one.close()
        report.at_most("files gained", server.wait_for_files(files) - files, 0, "")
        server.check_end(report)


def _wait_until_stalled(deaf: list[Deaf]) -> None:
    until = time.monotonic() + 60
    while any(not one.sent or time.monotonic() - one.last < STALLED_SECONDS for one in deaf):
        assert time.monotonic() < until, "the server goes on reading from who does not read"
        time.sleep(0.05)


def _median_seconds(address: str) -> float:
    """Of a small step in a stream, one after the other."""
    seconds: list[float] = []
    answered = threading.Semaphore(1)

    def requests() -> Iterator[bytes]:
        request = stream_request(good_step(), 1)
        for _ in range(STEPS):
            answered.acquire()
            yield request

    with grpc.insecure_channel(address) as channel:
        last = time.perf_counter()
        for _ in call_stream(channel, requests()):
            now = time.perf_counter()
            seconds.append(now - last)
            last = now
            answered.release()
    assert len(seconds) == STEPS
    return statistics.median(seconds)
