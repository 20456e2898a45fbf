"""How many steps the server holds at the same time, and how many bytes of them. Lives on the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from sampler_service.errors import Reason, Refusal, refuse, too_late
from sampler_service.limits import Limits


class Admission:
    """Counts what is admitted and not yet finished; what finds no room is refused, or waits in line.

    A step is admitted while fewer than ``max_queued_steps`` are, and their messages and its own come to at most
    ``max_queued_bytes``; a larger one is admitted alone. Nobody overtakes who waits: a large step would otherwise never
    find room among small ones. Whoever waits holds a message too, so those come to ``max_queued_bytes`` at most as
    well, and what the service holds in all to twice as much.

    Args:
        limits: ``max_queued_steps`` and ``max_queued_bytes``.
    """

    def __init__(self, limits: Limits) -> None:
        self._most_steps: Final = limits.max_queued_steps
        self._most_bytes: Final = limits.max_queued_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._waiting_bytes = 0
        self.steps = 0
        self.bytes = 0

    def try_enter(self, size: int) -> bool:
        """Admit a step whose message has ``size`` bytes, if there is room and nobody waits for it."""
        if self._waiting or not self._fits(size):
            return False
        self._admit(size)
        return True

    async def enter(self, size: int, timeout: float | None = None) -> None:
        """Admit a step once there is room; streams do, and so hold their clients back.

        Args:
            size: Bytes of its message.
            timeout: Seconds to wait at most; None for no bound.

        Raises:
            Refusal: QUEUE_BYTES_FULL: what waits already is as much as may wait. STEP_DEADLINE_EXCEEDED.
        """
        if self.try_enter(size):
            return
        if self._waiting and self._waiting_bytes + size > self._most_bytes:
            raise self.no_room(size)
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        timer = None if timeout is None else loop.call_later(timeout, _expire, turn)
        self._waiting.append((size, turn))
        self._waiting_bytes += size
        try:
            await turn
        except BaseException:
            # Called up, and cancelled before it woke.
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave(size)
            self._call_up()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def leave(self, size: int) -> None:
        """Give back the room of a step that was admitted."""
        self.steps -= 1
        self.bytes -= size
        self._call_up()

    def no_room(self, size: int) -> Refusal:
        """Why a step of ``size`` bytes is not admitted now."""
        if self.steps >= self._most_steps:
            return refuse(Reason.QUEUE_FULL, f"{self.steps} steps are waiting, as many as this server admits")
        what = f"steps of {self.bytes + self._waiting_bytes} bytes are waiting, and this one has {size}"
        return refuse(Reason.QUEUE_BYTES_FULL, f"{what}; this server admits {self._most_bytes} at the same time")

    def _fits(self, size: int) -> bool:
        return self.steps < self._most_steps and (self.bytes + size <= self._most_bytes or not self.steps)

    def _admit(self, size: int) -> None:
        self.steps += 1
        self.bytes += size

    def _call_up(self) -> None:
        """Admit who waits, in order, as far as there is room."""
        while self._waiting and (self._waiting[0][1].done() or self._fits(self._waiting[0][0])):
            size, turn = self._waiting.popleft()
            self._waiting_bytes -= size
            # Done before its turn: given up.
            if not turn.done():
                # Admitted here and not when it wakes: until then somebody else could take the room.
                self._admit(size)
                turn.set_result(None)


def _expire(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_exception(too_late())
