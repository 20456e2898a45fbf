"""The hot path for threads: one stream, many steps, sent ahead of their answers."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import grpc

from sampler_client.channel import MAX_IN_FLIGHT
from sampler_client.codec.status import call_error
from sampler_client.errors import Cancelled, DeadlineExceeded, SamplerError, Unavailable
from sampler_client.info import ServerInfo
from sampler_client.result import StepResult
from sampler_client.retry import NO_RETRIES, Attempts, RetryPolicy
from sampler_client.step import Step
from sampler_client.streams.ledger import Ledger

if TYPE_CHECKING:
    from typing_extensions import Self


class Answers(Protocol):
    """A running call of a stream, as gRPC hands it out."""

    def __iter__(self) -> Iterator[bytes]:
        """The answers; raises ``grpc.RpcError`` where the call fails."""

    def cancel(self) -> bool:
        """Ends the call at once."""


OpenStream = Callable[[Iterator[bytes]], Answers]


class Session:
    """A stream of steps. Safe to share between threads; a context manager. ``SamplerClient.session()`` makes one.

    Steps are answered in the order in which they were submitted. A step that fails does not touch the others.
    Parameter sets that the server knows already are not sent again, so hold on to your ``SamplingParams`` objects.
    If the stream breaks, the steps in flight fail, and the next step opens a new stream.

    Args:
        open_stream: Starts the call with an iterator of messages.
        describe: Asks the server what it can do, within some seconds; called each time a stream is opened.
        timeout: Seconds a step may take where the call does not say.
        retry: When :meth:`verify` sends a step again; only steps whose requests all carry a seed.
        max_in_flight: Steps sent ahead of their answers at most.
    """

    def __init__(
        self,
        open_stream: OpenStream,
        describe: Callable[[float], ServerInfo],
        *,
        timeout: float,
        retry: RetryPolicy,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._open_stream = open_stream
        self._describe = describe
        self._timeout = timeout
        self._retry = retry
        self._room = threading.BoundedSemaphore(max_in_flight)
        self._lock = threading.Lock()
        self._stream: _Stream | None = None
        self._closed = False

    def submit(self, step: Step, *, timeout: float | None = None) -> Future[StepResult]:
        """Sends a step and returns at once, unless ``max_in_flight`` steps await their answers: then it waits for one.

        Args:
            step: The step. Its arrays are read before this returns.
            timeout: Seconds within which the step is worth doing; the server answers later ones with
                ``DeadlineExceeded``.

        Returns:
            The result to come, or the error as :meth:`verify` raises it. Futures are done in the order of submission;
            cancelling one only drops its answer. A callback on it must not submit.

        Raises:
            InvalidStep: The step cannot be encoded.
            DeadlineExceeded: There was no room in time.
            Cancelled: The session is closed.
            SamplerError: The stream cannot be opened.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        if not self._room.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            raise _late("no room in time: the session's steps in flight are not answered")
        future: Future[StepResult] = Future()
        try:
            with self._lock:
                if self._closed:
                    raise Cancelled("the session is closed", code="CANCELLED")
                if self._stream is None or not self._stream.send(step, deadline, future):
                    server = self._describe(deadline - time.monotonic())
                    self._stream = _Stream(self._open_stream, server, self._room.release)
                    if not self._stream.send(step, deadline, future):
                        raise Unavailable("the stream ended as soon as it began", code="UNAVAILABLE")
        except BaseException:
            self._room.release()
            raise
        return future

    def verify(self, step: Step, *, timeout: float | None = None) -> StepResult:
        """Verifies one step: sends it and waits for its answer.

        Args:
            step: The step.
            timeout: Seconds within which the answer must be there, retries included.

        Raises:
            SamplerError: As :meth:`~sampler_client.client.SamplerClient.verify`.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        attempts = Attempts(self._retry if step.idempotent else NO_RETRIES, deadline)
        while True:
            try:
                return self._once(step, deadline)
            except SamplerError as error:
                wait = attempts.wait_after(error)
            time.sleep(wait)

    def close(self, *, timeout: float | None = None) -> None:
        """Ends the session once the steps in flight are answered.

        Args:
            timeout: Seconds to wait for them; what is unanswered then raises
                :class:`~sampler_client.errors.Cancelled`.
        """
        with self._lock:
            self._closed = True
            stream = self._stream
        if stream is not None:
            stream.close(self._timeout if timeout is None else timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _once(self, step: Step, deadline: float) -> StepResult:
        future = self.submit(step, timeout=deadline - time.monotonic())
        try:
            return future.result(deadline - time.monotonic())
        except FutureTimeout:
            raise _late("no answer in time") from None


class _Stream:
    """One call, from its start to its end; it is not used again after that."""

    def __init__(self, open_stream: OpenStream, server: ServerInfo, answered: Callable[[], None]) -> None:
        self._ledger: Ledger[Future[StepResult]] = Ledger(server)
        self._lock = threading.Lock()
        self._ended = False
        self._answered = answered
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._call = open_stream(iter(self._messages.get, None))
        self._reader = threading.Thread(target=self._read, name="sampler-session", daemon=True)
        self._reader.start()

    def send(self, step: Step, deadline: float, future: Future[StepResult]) -> bool:
        """Sends a step; False if the stream has ended and the step needs another one."""
        # Encoded under the lock: what the ledger assumes the server to keep depends on the order of the messages.
        with self._lock:
            if self._ended:
                return False
            self._messages.put(self._ledger.enter(step, deadline - time.monotonic(), future))
            return True

    def close(self, timeout: float) -> None:
        """Ends the call once all is answered, or after ``timeout`` seconds."""
        self._messages.put(None)
        self._reader.join(timeout)
        if self._reader.is_alive():
            self._call.cancel()
            self._reader.join()

    def _read(self) -> None:
        ending: SamplerError = Unavailable("the server ended the stream", code="UNAVAILABLE")
        try:
            for answer in self._call:
                with self._lock:
                    future, outcome = self._ledger.settle(answer)
                self._answered()
                _resolve(future, outcome)
        except grpc.RpcError as failure:
            ending = call_error(failure)
        except SamplerError as fault:
            ending = fault
            self._call.cancel()
        with self._lock:
            self._ended = True
            abandoned = self._ledger.abandon()
        self._messages.put(None)
        for future in abandoned:
            self._answered()
            _resolve(future, ending)


def _resolve(future: Future[StepResult], outcome: StepResult | SamplerError) -> None:
    # The caller may have cancelled the future, at any moment.
    with suppress(InvalidStateError):
        if isinstance(outcome, SamplerError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


def _late(message: str) -> DeadlineExceeded:
    return DeadlineExceeded(message, code="DEADLINE_EXCEEDED")
