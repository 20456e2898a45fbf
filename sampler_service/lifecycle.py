"""Whether the server takes new work, and what it still owes. Lives on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from sampler_service.errors import Reason, Refusal, refuse


class Lifecycle:
    """Counts the calls that are open, and wakes whoever waits for the drain or for its end."""

    def __init__(self) -> None:
        self._open = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = asyncio.Event()

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


def draining() -> Refusal:
    """What is said to whatever comes during a drain."""
    return refuse(Reason.DRAINING, "the server is shutting down and takes no new steps")
