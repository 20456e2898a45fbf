"""The one thread that owns the device. Jobs go in through a queue; each is answered by a call back from the thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from time import perf_counter
from typing import Final

from sampler_kernels import StepResult
from sampler_service.errors import Refusal, internal

_log: Final = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Job:
    """Something to run on the device.

    Attributes:
        work: Runs on the worker's thread.
        done: Called once from that thread after the work, with the job; must not block.
        outcome: What the work returned, or INTERNAL_ERROR if it failed.
        started: When the work began, on the clock of ``perf_counter``.
    """

    work: Callable[[], StepResult | None]
    done: Callable[[Job], None]
    outcome: StepResult | Refusal | None = None
    started: float = 0.0

    def abandon(self) -> None:
        """Nobody wants the result any more: work that has not begun is left out, and what it holds let go of at once.

        A queue of abandoned steps would otherwise hold their bytes until the device comes to them, and nobody would
        count them.
        """
        self.work, self.done = _nothing, _nobody


class Worker:
    """Runs jobs one after the other, in the order in which they were submitted."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="device", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a job. Never blocks: whoever submits bounds how much is queued."""
        self._jobs.put(job)

    def stop(self, timeout: float) -> bool:
        """Let the queued jobs end, then the thread.

        Args:
            timeout: Seconds to wait.

        Returns:
            Whether the thread ended in time.
        """
        self._jobs.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _loop(self) -> None:
        while (job := self._jobs.get()) is not None:
            _run(job)
            # Not held while the thread waits: a job keeps its step's bytes alive.
            del job


def _nothing() -> None:
    """The work of a job that was abandoned."""


def _nobody(_job: Job) -> None:
    """Whom to tell of it."""


def _run(job: Job) -> None:
    # Read once: it may be abandoned at any moment.
    work = job.work
    if work is _nothing:
        return
    job.started = perf_counter()
    try:
        job.outcome = work()
    except Exception:  # noqa: BLE001  (the thread must outlive any single step)
        # The step itself stays out of the log: it is the client's.
        _log.exception("a step failed on the device thread")
        job.outcome = internal()
    job.done(job)
