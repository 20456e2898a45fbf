"""When a failed call is tried again.

gRPC's own retries are a property of the method, not of the call: they cannot tell a seeded step from one without a
seed, do not read the server's RetryInfo, and give up on messages larger than their buffer. So the client decides.
"""

from __future__ import annotations

import random
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


def wait_before_retry(error: SamplerError, planned: float, remaining: float) -> float | None:
    """How long to wait before the next call, or None if there shall be none.

    Args:
        error: Why the last call failed. UNAVAILABLE is retried, and RESOURCE_EXHAUSTED where the server says when.
        planned: Seconds that the policy would wait; the server's own delay holds if it is longer.
        remaining: Seconds left until the deadline of the whole.
    """
    full_for_now = isinstance(error, ResourceExhausted) and error.retry_delay is not None
    wait = max(planned, error.retry_delay or 0.0)
    return wait if (full_for_now or isinstance(error, Unavailable)) and wait < remaining else None
