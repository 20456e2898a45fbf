"""Counts, times and rates are kept, and a stall is charged to all that waited for it."""

from __future__ import annotations

import numpy as np
import pytest

from sampler_loadtest.callers import Answer
from sampler_loadtest.runner import Extent, run_phase
from tests.loadtest.fakes import Sleeper


def test_a_count_is_shared_by_all_callers() -> None:
    caller = Sleeper(0.001)
    phase = run_phase([caller] * 4, Extent(count=50), first_call=100)
    assert sorted(caller.numbers) == list(range(100, 150))
    assert (len(phase), dict(phase.codes)) == (50, {"OK": 50})


def test_a_time_ends_the_phase() -> None:
    phase = run_phase([Sleeper(0.01)], Extent(seconds=0.1))
    # Calls start within the time, and each takes at least 10 ms.
    assert 1 <= len(phase) <= 10
    assert phase.seconds >= len(phase) * 0.01


def test_a_rate_is_kept() -> None:
    phase = run_phase([Sleeper(0.0)] * 2, Extent(count=20, rate=200.0))
    # The last of 20 is to start after 19 spaces of 5 ms.
    assert phase.seconds >= 19 / 200


def test_latencies_at_a_rate_count_from_the_intended_start() -> None:
    # One caller at 100 a second. The first call stalls for 200 ms, so those that should have begun at 10, 20, ... 90 ms
    # begin after it.
    phase = run_phase([Sleeper(0.0, stalls={0: 0.2})], Extent(count=10, rate=100.0))
    latency, late = phase.column("latency_us"), phase.column("late_us")
    intended = np.arange(10) * 1e4
    assert (late[1:] >= 2e5 - intended[1:]).all()
    assert (latency >= late).all()
    # What the service itself took does not hold the wait: 200 ms once, less the device's 30 us.
    assert phase.service_us[0] >= 2e5 - 30
    assert phase.service_us.sum() < 2 * phase.service_us[0]


def test_a_closed_loop_has_no_late_starts_and_a_pause_is_no_latency() -> None:
    phase = run_phase([Sleeper(0.0)], Extent(count=5, pause=0.02))
    assert phase.seconds >= 5 * 0.02
    assert not phase.column("late_us").any()
    assert np.median(phase.column("latency_us")) < 2e4


def test_failures_are_counted_by_code_and_are_no_samples() -> None:
    phase = run_phase([Sleeper(0.0, failures=frozenset({1, 3}))], Extent(count=5))
    assert (len(phase), dict(phase.codes)) == (3, {"OK": 3, "UNAVAILABLE": 2})
    assert phase.errors == {"UNAVAILABLE": "call 1"}


def test_a_fault_of_a_caller_is_raised() -> None:
    class Broken(Sleeper):
        def call(self, number: int) -> Answer:
            raise ZeroDivisionError(number)

    with pytest.raises(ZeroDivisionError):
        run_phase([Broken(0.0), Sleeper(0.0)], Extent(count=1000))


def test_progress_is_told() -> None:
    told: list[int] = []
    run_phase([Sleeper(0.3)], Extent(count=2), told.append)
    assert told == sorted(told)
    assert told[-1] == 2
