"""Between the event loop and the device thread: admission, deadlines, and the count that a drain waits for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TypeAlias

from sampler_kernels import StepResult
from sampler_service.admission import Admission
from sampler_service.engine import Engine
from sampler_service.errors import Refusal, internal, too_late
from sampler_service.limits import Limits
from sampler_service.steps import CheckedStep, Ran
from sampler_service.worker import Job, Worker

Outcome: TypeAlias = "Ran | Refusal"
Done: TypeAlias = "Callable[[Outcome], None]"


class Pending:
    """A step that was admitted. Lives on the event loop."""

    __slots__ = ("_admission", "_done", "_job", "_timer")

    def __init__(self, admission: Callable[[], None], done: Done) -> None:
        self._admission: Callable[[], None] | None = admission
        self._done = done
        self._job: Job | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, job: Job, timer: asyncio.TimerHandle | None) -> None:
        """What runs the step, and what ends it if that takes too long."""
        self._job, self._timer = job, timer

    def finish(self, outcome: Outcome) -> None:
        """Tell the caller, unless it was told or has given up."""
        if self._settle():
            self._done(outcome)

    def abandon(self) -> None:
        """Give the step up: nobody is told, and it is not started if it has not been yet."""
        self._settle()

    def _settle(self) -> bool:
        if self._admission is None:
            return False
        self._admission()
        self._admission = None
        if self._timer is not None:
            self._timer.cancel()
        if self._job is not None:
            self._job.abandon()
            # The job knows us: a cycle would hold the step's bytes until the collector looks for it.
            self._job = None
        return True


class Dispatcher:
    """Hands steps to the worker. Lives on the event loop; nothing here blocks it.

    Args:
        engine: Runs the steps.
        worker: The thread that may call the engine.
        limits: What is admitted at the same time.

    Attributes:
        admission: Counts the steps admitted and not yet finished.
    """

    def __init__(self, engine: Engine, worker: Worker, limits: Limits) -> None:
        self._engine = engine
        self._worker = worker
        self.admission = Admission(limits)

    @property
    def admitted(self) -> int:
        """Steps admitted and not yet finished."""
        return self.admission.steps

    def submit(self, checked: CheckedStep, size: int, arrived: float, timeout: float | None, done: Done) -> Pending:
        """Queue a step that was admitted; from here on its room is given back when it ends.

        Args:
            checked: The step.
            size: Bytes of its message, as it was admitted with.
            arrived: When its message came, on the clock of ``perf_counter``.
            timeout: Seconds from ``arrived`` within which the step must be done; None for no bound.
            done: Called once, later and on the event loop, with the result or with why there is none.

        Returns:
            The step, for a caller that may want to give it up.

        Raises:
            Refusal: STEP_DEADLINE_EXCEEDED.
        """
        left = None if timeout is None else arrived + timeout - perf_counter()
        if left is not None and left <= 0:
            self.admission.leave(size)
            raise too_late()
        loop = asyncio.get_running_loop()
        pending = Pending(partial(self.admission.leave, size), done)
        timer = None if left is None else loop.call_later(left, lambda: pending.finish(too_late()))
        job = Job(partial(self._engine.run, checked), partial(_hand_over, loop, checked, arrived, pending))
        pending.start(job, timer)
        self._worker.submit(job)
        return pending

    async def result(self, checked: CheckedStep, size: int, arrived: float, timeout: float | None) -> Ran:
        """Queue a step whose message has ``size`` bytes and wait for it; giving up the wait gives up the step.

        Raises:
            Refusal: Why there is no result.
        """
        if not self.admission.try_enter(size):
            raise self.admission.no_room(size)
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        pending = self.submit(checked, size, arrived, timeout, future.set_result)
        try:
            outcome = await future
        finally:
            pending.abandon()
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome

    async def warm(self) -> None:
        """Run the engine's warm-up on the device thread.

        Raises:
            Refusal: INTERNAL_ERROR: the backend does not work here.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Refusal | None] = loop.create_future()

        def tell(job: Job) -> None:
            loop.call_soon_threadsafe(future.set_result, job.outcome if isinstance(job.outcome, Refusal) else None)

        self._worker.submit(Job(self._engine.warm, tell))
        refusal = await future
        if refusal is not None:
            raise refusal


def _hand_over(
    loop: asyncio.AbstractEventLoop, checked: CheckedStep, arrived: float, pending: Pending, job: Job
) -> None:
    """From the device thread to the event loop."""
    outcome = job.outcome
    answer = (
        Ran(checked.step, outcome, arrived, job.started) if isinstance(outcome, StepResult) else outcome or internal()
    )
    # A loop that is closed belongs to a server that has given up waiting: nobody is left to answer.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(pending.finish, answer)
