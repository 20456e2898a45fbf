"""Whether a stream's client still takes its answers.

gRPC asks a silent client whether it is there, but on a unix socket the question lies behind the answers that are not
taken, and is never sent: a client stopped in full swing would hold its stream for as long as it stays stopped. So an
answer that is not taken for that long counts as the loss of the connection.
"""

from __future__ import annotations

import asyncio
from time import perf_counter

from sampler_service.errors import Reason, Refusal, refuse


class Unread:
    """Ends a stream one of whose answers was not taken in time.

    Args:
        seconds: How long an answer may wait to be taken.

    Attributes:
        since: When the answer on its way was given to gRPC, on the clock of ``perf_counter``; 0 while there is none.
    """

    def __init__(self, seconds: float) -> None:
        self.since = 0.0
        self._seconds = seconds
        self._ended = False

    async def watch(self, stream: asyncio.Task[None]) -> None:
        """Cancel the task that writes the answers, once one was not taken in time."""
        # Looked at now and then: a timer for each answer would cost every answer something.
        while not self.since or perf_counter() - self.since < self._seconds:
            await asyncio.sleep(self._seconds / 4)
        self._ended = True
        stream.cancel()

    def refusal(self) -> Refusal | None:
        """Why the stream ended, if it was for this."""
        if not self._ended:
            return None
        what = f"an answer was not taken for {self._seconds:g} seconds; the connection counts as lost"
        return refuse(Reason.ANSWERS_NOT_READ, what)
