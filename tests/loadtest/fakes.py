"""Callers that answer after a given time."""

from __future__ import annotations

import threading
import time

from sampler_client import Timing
from sampler_loadtest.callers import Answer, CallFailed


class Sleeper:
    """Takes ``seconds`` for each call, and longer for those named in ``stalls``; fails those in ``failures``."""

    def __init__(
        self, seconds: float, *, stalls: dict[int, float] | None = None, failures: frozenset[int] = frozenset()
    ) -> None:
        self._seconds = seconds
        self._stalls = stalls or {}
        self._failures = failures
        self._lock = threading.Lock()
        self.numbers: list[int] = []

    def call(self, number: int) -> Answer:
        with self._lock:
            self.numbers.append(number)
        if number in self._failures:
            raise CallFailed("UNAVAILABLE", f"call {number}")
        time.sleep(self._stalls.get(number, self._seconds))
        return Answer(3, 0, Timing(queue_us=1.0, upload_us=2.0, device_us=30.0, download_us=4.0, total_us=50.0))

    def close(self) -> None:
        pass
