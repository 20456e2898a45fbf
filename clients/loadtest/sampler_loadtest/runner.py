"""Calls in a closed loop or at a fixed rate, from several threads, for a count or for a time."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sampler_loadtest.callers import Caller, CallFailed
from sampler_loadtest.samples import Phase, Sample

MOST_CALLS: Final = 5_000_000
"""Calls of a phase at most: every sample is kept, so that percentiles are exact, and takes some 200 bytes."""

_NOTHING: Final = float("nan")
_NOTICE_SECONDS: Final = 0.25


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How long a phase lasts, and how calls are spaced.

    Attributes:
        count: Calls at most, over all callers.
        seconds: No call starts later than this; None: only ``count`` ends the phase.
        rate: Calls a second over all callers; None: a caller starts its next call when the last has ended.
        pause: Seconds between the end of a caller's call and the start of its next, as an engine computes between its
            steps; without ``rate``. It is no part of any latency.
    """

    count: int = MOST_CALLS
    seconds: float | None = None
    rate: float | None = None
    pause: float = 0.0


def run_phase(
    callers: Sequence[Caller],
    extent: Extent,
    on_progress: Callable[[int], None] | None = None,
    *,
    first_call: int = 0,
) -> Phase:
    """Runs one phase to its end.

    Args:
        callers: One thread calls through each.
        extent: When it ends.
        on_progress: Called a few times a second with the number of calls that have ended.
        first_call: Number of the first call, so that the next phase goes on in the rotation of steps.

    Raises:
        KeyboardInterrupt: After the calls in flight have ended.
    """
    phase = _Running(extent, first_call)
    threads = [_Loop(caller, phase) for caller in callers]
    for thread in threads:
        thread.start()
    phase.begin()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(_NOTICE_SECONDS)
                if on_progress:
                    on_progress(sum(one.ended for one in threads))
    except KeyboardInterrupt:
        phase.stopped.set()
        for thread in threads:
            thread.join()
        raise
    for thread in threads:
        if thread.fault is not None:
            raise thread.fault
    seconds = max(thread.last_end for thread in threads) - phase.started
    errors: dict[str, str] = {}
    for thread in threads:
        errors = thread.errors | errors
    samples = itertools.chain.from_iterable(thread.samples for thread in threads)
    return Phase.of(samples, sum((thread.codes for thread in threads), Counter()), seconds, errors)


@dataclass(eq=False)
class _Running:
    """What the callers of a phase share."""

    extent: Extent
    first_call: int
    stopped: threading.Event = field(default_factory=threading.Event)
    started: float = 0.0
    _begun: threading.Event = field(default_factory=threading.Event)
    # One step of a count is a single call into C, which no other thread interrupts.
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def begin(self) -> None:
        """Lets all callers start."""
        self.started = time.perf_counter()
        self._begun.set()

    def wait(self) -> None:
        """Waits for :meth:`begin`."""
        self._begun.wait()

    def next_start(self) -> tuple[int, float] | None:
        """Number and intended start of the next call, waited for; None when the phase is over."""
        number = next(self._numbers)
        extent = self.extent
        if extent.pause and extent.rate is None:
            self.stopped.wait(extent.pause)
        now = time.perf_counter()
        intended = now if extent.rate is None else self.started + number / extent.rate
        over = extent.seconds is not None and intended - self.started >= extent.seconds
        if number >= extent.count or over or self.stopped.is_set():
            return None
        if intended > now and self.stopped.wait(intended - now):
            return None
        return self.first_call + number, intended


class _Loop(threading.Thread):
    """One caller at work."""

    def __init__(self, caller: Caller, phase: _Running) -> None:
        super().__init__(name="caller", daemon=True)
        self._caller, self._phase = caller, phase
        self.samples: list[Sample] = []
        self.codes: Counter[str] = Counter()
        self.errors: dict[str, str] = {}
        self.ended = 0
        self.last_end = 0.0
        self.fault: BaseException | None = None

    def run(self) -> None:
        """Calls until the phase is over."""
        self._phase.wait()
        self.last_end = self._phase.started
        try:
            while (turn := self._phase.next_start()) is not None:
                self._one(*turn)
        except BaseException as fault:  # noqa: BLE001  (raised again by whoever waits for the thread)
            self.fault = fault
            self._phase.stopped.set()

    def _one(self, number: int, intended: float) -> None:
        started = time.perf_counter() if self._phase.extent.rate is not None else intended
        try:
            tokens, failed, timing = self._caller.call(number)
        except CallFailed as failure:
            self.last_end = time.perf_counter()
            self.codes[failure.code] += 1
            self.errors.setdefault(failure.code, str(failure))
        else:
            self.last_end = ended = time.perf_counter()
            spent = (ended - intended) * 1e6, (started - intended) * 1e6, tokens, failed
            if timing is None:
                told = (_NOTHING,) * 5
            else:
                told = timing.queue_us, timing.upload_us, timing.device_us, timing.download_us, timing.total_us
            self.samples.append(Sample(*spent, *told))
            self.codes["OK"] += 1
        self.ended += 1
