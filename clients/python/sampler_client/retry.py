"""When a failed call is tried again.

gRPC's own retries are a property of the method, not of the call: they cannot tell a seeded step from one without a
seed, do not read the server's RetryInfo, and give up on messages larger than their buffer. So the client decides.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

from sampler_client.errors import ResourceExhausted, SamplerError, Unavailable


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with jitter. Only what is safe is retried: calls that read, and steps with a seed each.

    Attributes:
        attempts: Calls in all, the first included; 1: no retries.
        first_delay: Seconds before the second call, before jitter.
        max_delay: Longest wait in seconds that the policy chooses itself.
        multiplier: Growth of the delay from call to call.
    """

    attempts: int = 4
    first_delay: float = 0.05
    max_delay: float = 1.0
    multiplier: float = 2.0

    def delays(self) -> Iterator[float]:
        """Seconds to wait before each further call: uniform between half of the delay and the whole of it."""
        delay = self.first_delay
        for _ in range(self.attempts - 1):
            yield delay * random.uniform(0.5, 1.0)
            delay = min(delay * self.multiplier, self.max_delay)


NO_RETRIES = RetryPolicy(attempts=1)
"""Every call is made once."""


class Attempts:
    """The attempts at one call: how often it may be made again, and when.

    Args:
        policy: The caller's wishes.
        deadline: Time on ``time.monotonic()`` by which the whole must be done.
    """

    def __init__(self, policy: RetryPolicy, deadline: float) -> None:
        self._delays = policy.delays()
        self._deadline = deadline

    def wait_after(self, error: SamplerError) -> float:
        """Seconds to wait before the call is made again: the policy's delay, or the server's if that is longer.

        Raises:
            SamplerError: ``error`` itself, where there shall be no further attempt: it is neither UNAVAILABLE nor a
                RESOURCE_EXHAUSTED that says when to come back, or attempts or time are used up.
        """
        full_for_now = isinstance(error, ResourceExhausted) and error.retry_delay is not None
        planned = next(self._delays, None) if full_for_now or isinstance(error, Unavailable) else None
        if planned is None:
            raise error
        wait = max(planned, error.retry_delay or 0.0)
        if time.monotonic() + wait >= self._deadline:
            raise error
        return wait
