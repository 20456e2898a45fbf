"""Whether the server takes new work, and what it still owes. Lives on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from sampler_service.errors import Reason, Refusal, refuse

QUIET: Final = 0.2
"""Seconds in which nothing came, after which a drain is known to everybody: what a client sent before it could know has
arrived by then and was answered."""

LONGEST_LINGER: Final = 2.0
"""Seconds for which a client that will not stop sending goes on being refused."""


class Lifecycle:
    """Counts the calls that are open, and wakes whoever waits for the drain or for its end."""

    def __init__(self) -> None:
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = asyncio.Event()
        self._last_refused = 0.0

    @property
    def is_draining(self) -> bool:
        """Whether new work is refused."""
        return self._draining.is_set()

    def check_open(self) -> None:
        """Refuse new work during a drain.

        Raises:
            Refusal: DRAINING.
        """
        if self.is_draining:
            self._last_refused = perf_counter()
            raise draining()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call as open while the block runs.

        Raises:
            Refusal: DRAINING.
        """
        self.check_open()
        self._open += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._idle.set()

    def start_drain(self) -> None:
        """Refuse new work from here on."""
        self._draining.set()

    async def drain_started(self) -> None:
        """Wait for the drain to begin."""
        await self._draining.wait()

    async def idle(self) -> None:
        """Wait until no call is open."""
        await self._idle.wait()

    async def quiet(self) -> None:
        """Wait until no call is open and none comes any more: gRPC cancels those that come once it stops."""
        await self.idle()
        since = perf_counter()
        while perf_counter() - max(since, self._last_refused) < QUIET and perf_counter() - since < LONGEST_LINGER:
            await asyncio.sleep(QUIET / 4)


def draining() -> Refusal:
    """What is said to whatever comes during a drain."""
    return refuse(Reason.DRAINING, "the server is shutting down and takes no new steps")
