"""SIGTERM under load: what was received is answered, what comes later is sent elsewhere, and the end comes soon."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

from sampler_client import SamplerClient, SamplerError, Unavailable
from sampler_client.retry import NO_RETRIES
from tests.chaos.report import Report
from tests.chaos.restart import step_of
from tests.chaos.watched import watched
from tests.service.bookkeeper import MIN_RESULTS, Bookkeeper

STREAMS, CALLERS = 3, 3
LOAD_SECONDS = 20.0
"""Within which everybody has had answers, even on a busy machine."""

END_SECONDS = 5.0
"""From SIGTERM to the end. The linger of a stream (2 s), gRPC's grace and the device thread's (1 s each) come to 4; the
steps in flight take milliseconds."""

NOT_CONNECTED = ("failed to connect", "connection attempt", "connections to all backends failing", "GOAWAY", "goaway")
"""How gRPC says that a call never left: the server's socket is gone, or it had said that it takes no more calls."""


class Caller:
    """Somebody who makes unary calls, waits when told to, until nobody is there any more; counts how they end."""

    def __init__(self, address: str) -> None:
        self.ends: Counter[str] = Counter()
        self.lost: list[str] = []
        self._address = address
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with SamplerClient(self._address, retry=NO_RETRIES, options=options) as client:
            while not self.lost:
                self._call(client)

    def _call(self, client: SamplerClient) -> None:
        try:
            client.verify(step_of(1))
        except SamplerError as error:
            if not (isinstance(error, Unavailable) and error.reason == "DRAINING" and error.retry_delay):
                self.lost.append(repr(error))
                return
            self.ends["sent elsewhere"] += 1
            # As an engine would, or rather: as it may at the earliest.
            time.sleep(error.retry_delay)
        else:
            self.ends["answered"] += 1

    def check(self, report: Report) -> None:
        self._thread.join()
        report.done["calls answered"] += self.ends["answered"]
        report.done["calls sent elsewhere"] += self.ends["sent elsewhere"]
        report.expect(self.ends["answered"] > 0, "a caller had no answer before the end")
        for text in self.lost:
            report.expect(any(part in text for part in NOT_CONNECTED), f"a call was received and lost: {text}")


def drain(report: Report, directory: Path, *, rounds: int, seed: int) -> None:
    """End a server under load ``rounds`` times."""
    rng = Random(seed)
    for number in range(rounds):
        place = directory / str(number)
        place.mkdir()
        with watched(place) as server:
            streams = [Bookkeeper(server.address) for _ in range(STREAMS)]
            callers = [Caller(server.address) for _ in range(CALLERS)]
            _wait_for_load(streams, callers)
            time.sleep(rng.uniform(0.0, 0.5))
            started = time.monotonic()
            server.check_end(report)
            report.at_most("until the end", time.monotonic() - started, END_SECONDS, "s")
            for caller in callers:
                caller.check(report)
            for stream in streams:
                _check(report, stream)
        report.tick()
        report.done["servers ended"] += 1


def _wait_for_load(streams: list[Bookkeeper], callers: list[Caller]) -> None:
    until = time.monotonic() + LOAD_SECONDS
    while min(len(one.answers) for one in streams) <= MIN_RESULTS or not all(one.ends["answered"] for one in callers):
        assert time.monotonic() < until, "a stream or caller has no answers"
        time.sleep(0.02)


def _check(report: Report, stream: Bookkeeper) -> None:
    try:
        stream.check()
    except AssertionError as error:
        report.findings.append(f"a stream is owed something: {error}")
    report.done["steps answered"] += len(stream.answers)
