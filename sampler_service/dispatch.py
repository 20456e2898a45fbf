"""Between the event loop and the device thread: admission, deadlines, and the count that a drain waits for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TypeAlias

from sampler_kernels import StepResult
from sampler_service.engine import Engine
from sampler_service.errors import Reason, Refusal, refuse
from sampler_service.limits import Limits
from sampler_service.steps import CheckedStep, Ran
from sampler_service.worker import Job, Worker


class Dispatcher:
    """Hands steps to the worker and gives back futures. Lives on the event loop; nothing here blocks it.

    Args:
        engine: Runs the steps.
        worker: The thread that may call the engine.
        limits: ``max_queued_steps`` bounds the steps admitted and not yet finished.
    """

    def __init__(self, engine: Engine, worker: Worker, limits: Limits) -> None:
        self._engine = engine
        self._worker = worker
        self._most = limits.max_queued_steps
        self._admitted = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def admitted(self) -> int:
        """Steps admitted and not yet finished."""
        return self._admitted

    @property
    def is_full(self) -> bool:
        """Whether the next step has to wait or is refused."""
        return self._admitted >= self._most

    async def room(self) -> None:
        """Wait until a step can be admitted; streams do, and so hold their clients back."""
        while self.is_full:
            self._room.clear()
            await self._room.wait()

    def submit(self, checked: CheckedStep, arrived: float, timeout: float | None) -> asyncio.Future[Ran]:
        """Queue a step.

        Args:
            checked: The step.
            arrived: When its message came, on the clock of ``perf_counter``.
            timeout: Seconds from ``arrived`` within which the step must be done; None for no bound.

        Returns:
            A future that ends with the result or with a :class:`Refusal`. Cancelling it abandons the step.

        Raises:
            Refusal: QUEUE_FULL or STEP_DEADLINE_EXCEEDED.
        """
        if self.is_full:
            raise refuse(Reason.QUEUE_FULL, f"{self._admitted} steps are waiting, as many as this server admits")
        left = None if timeout is None else arrived + timeout - perf_counter()
        if left is not None and left <= 0:
            raise _too_late()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ran] = loop.create_future()
        job = Job(partial(self._engine.run, checked), lambda outcome: _hand_over(loop, finish, outcome))

        def finish(outcome: Outcome) -> None:
            if isinstance(outcome, Refusal):
                _refuse_late(future, outcome)
            elif outcome is not None and not future.done():
                future.set_result(Ran(checked.step, outcome, arrived, job.started))

        def settle(_: asyncio.Future[Ran]) -> None:
            job.abandoned = True
            self._admitted -= 1
            self._room.set()

        future.add_done_callback(settle)
        if left is not None:
            timer = loop.call_later(left, lambda: _refuse_late(future, _too_late()))
            future.add_done_callback(lambda _: timer.cancel())
        self._admitted += 1
        self._worker.submit(job)
        return future

    async def warm(self) -> None:
        """Run the engine's warm-up on the device thread.

        Raises:
            Refusal: INTERNAL_ERROR: the backend does not work here.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def finish(outcome: Outcome) -> None:
            if isinstance(outcome, Refusal):
                future.set_exception(outcome)
            else:
                future.set_result(None)

        self._worker.submit(Job(self._engine.warm, lambda outcome: _hand_over(loop, finish, outcome)))
        await future


Outcome: TypeAlias = "StepResult | Refusal | None"


def _hand_over(loop: asyncio.AbstractEventLoop, finish: Callable[[Outcome], None], outcome: Outcome) -> None:
    """From the device thread to the event loop."""
    # A loop that is closed belongs to a server that has given up waiting: nobody is left to answer.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(finish, outcome)


def _refuse_late(future: asyncio.Future[Ran], refusal: Refusal) -> None:
    if not future.done():
        future.set_exception(refusal)


def _too_late() -> Refusal:
    return refuse(Reason.STEP_DEADLINE_EXCEEDED, "the step was not done within the time that its caller gave it")
