"""Which failures are tried again, and when."""

from __future__ import annotations

import time

import pytest

from sampler_client import InvalidStep, ResourceExhausted, RetryPolicy, SamplerError, Unavailable
from sampler_client.errors import error_class
from sampler_client.retry import NO_RETRIES, Attempts

POLICY = RetryPolicy(attempts=5, first_delay=0.1, max_delay=0.3, multiplier=2)


def unavailable(retry_delay: float | None = None) -> Unavailable:
    return Unavailable("x", code="UNAVAILABLE", retry_delay=retry_delay)


def attempts(policy: RetryPolicy = POLICY, seconds: float = 60.0) -> Attempts:
    return Attempts(policy, time.monotonic() + seconds)


def test_delays_grow_with_jitter_up_to_the_largest() -> None:
    for _ in range(50):
        delays = list(POLICY.delays())
        assert len(delays) == 4
        for delay, whole in zip(delays, [0.1, 0.2, 0.3, 0.3], strict=True):
            assert whole / 2 <= delay <= whole


def test_attempts_are_counted() -> None:
    tries = attempts()
    for _ in range(4):
        tries.wait_after(unavailable())
    with pytest.raises(Unavailable):
        tries.wait_after(unavailable())
    with pytest.raises(Unavailable):
        attempts(NO_RETRIES).wait_after(unavailable())


def test_longer_delay_holds() -> None:
    assert attempts().wait_after(unavailable(5.0)) == 5.0
    assert attempts().wait_after(unavailable(0.001)) >= 0.05


def test_deadline_holds() -> None:
    with pytest.raises(Unavailable):
        attempts(seconds=1.0).wait_after(unavailable(2.0))
    with pytest.raises(Unavailable):
        attempts(seconds=0.0).wait_after(unavailable())


@pytest.mark.parametrize(
    "error",
    [
        InvalidStep("x", code="INVALID_ARGUMENT"),
        ResourceExhausted("x", code="RESOURCE_EXHAUSTED"),  # too large, for example: no delay makes it smaller
        error_class("DEADLINE_EXCEEDED")("x", code="DEADLINE_EXCEEDED"),
        error_class("INTERNAL")("x", code="INTERNAL"),
    ],
    ids=lambda error: error.code,
)
def test_what_would_not_help_is_not_tried(error: SamplerError) -> None:
    with pytest.raises(type(error)):
        attempts().wait_after(error)


def test_full_server_that_says_when() -> None:
    assert attempts().wait_after(ResourceExhausted("x", code="RESOURCE_EXHAUSTED", retry_delay=0.5)) == 0.5
