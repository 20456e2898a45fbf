"""The hot path for asyncio: one stream, many steps, sent ahead of their answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

import grpc.aio

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

OpenStream = Callable[[], "grpc.aio.StreamStreamCall[bytes, bytes]"]


class AsyncSession:
    """A stream of steps for one event loop; an async context manager. ``AsyncSamplerClient.session()`` makes one.

    The same as :class:`~sampler_client.session.Session` in everything but the waiting.

    Args:
        open_stream: Starts the call.
        describe: Asks the server what it can do, within some seconds; called each time a stream is opened.
        timeout: Seconds a step may take where the call does not say.
        retry: When :meth:`verify` sends a step again; only steps whose requests all carry a seed.
        max_in_flight: Steps sent ahead of their answers at most.
    """

    def __init__(
        self,
        open_stream: OpenStream,
        describe: Callable[[float], Awaitable[ServerInfo]],
        *,
        timeout: float,
        retry: RetryPolicy,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._open_stream = open_stream
        self._describe = describe
        self._timeout = timeout
        self._retry = retry
        self._room = asyncio.BoundedSemaphore(max_in_flight)
        self._opening = asyncio.Lock()
        self._stream: _Stream | None = None
        self._closed = False

    async def submit(self, step: Step, *, timeout: float | None = None) -> asyncio.Future[StepResult]:
        """Sends a step and returns, unless ``max_in_flight`` steps await their answers: then it waits for one.

        Args:
            step: The step. Its arrays are read before this returns.
            timeout: Seconds within which the step is worth doing; the server answers later ones with
                ``DeadlineExceeded``.

        Returns:
            The result to come, or the error as :meth:`verify` raises it. Futures are done in the order of submission;
            cancelling one only drops its answer.

        Raises:
            InvalidStep: The step cannot be encoded.
            DeadlineExceeded: There was no room in time.
            Cancelled: The session is closed.
            SamplerError: The stream cannot be opened.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        try:
            await asyncio.wait_for(self._room.acquire(), deadline - time.monotonic())
        except asyncio.TimeoutError:
            raise _late("no room in time: the session's steps in flight are not answered") from None
        try:
            future: asyncio.Future[StepResult] = asyncio.get_running_loop().create_future()
            async with self._opening:
                if self._closed:
                    raise Cancelled("the session is closed", code="CANCELLED")
                if self._stream is None or not self._stream.send(step, deadline, future):
                    server = await self._describe(deadline - time.monotonic())
                    self._stream = _Stream(self._open_stream(), server, self._room.release)
                    self._stream.send(step, deadline, future)
        except BaseException:
            self._room.release()
            raise
        return future

    async def verify(self, step: Step, *, timeout: float | None = None) -> StepResult:
        """Verifies one step: sends it and waits for its answer.

        Args:
            step: The step.
            timeout: Seconds within which the answer must be there, retries included.

        Raises:
            SamplerError: As :meth:`~sampler_client.aio.AsyncSamplerClient.verify`.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        attempts = Attempts(self._retry if step.idempotent else NO_RETRIES, deadline)
        while True:
            try:
                return await self._once(step, deadline)
            except SamplerError as error:
                wait = attempts.wait_after(error)
            await asyncio.sleep(wait)

    async def close(self, *, timeout: float | None = None) -> None:
        """Ends the session once the steps in flight are answered.

        Args:
            timeout: Seconds to wait for them; what is unanswered then raises
                :class:`~sampler_client.errors.Cancelled`.
        """
        async with self._opening:
            self._closed = True
        if self._stream is not None:
            await self._stream.close(self._timeout if timeout is None else timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _once(self, step: Step, deadline: float) -> StepResult:
        future = await self.submit(step, timeout=deadline - time.monotonic())
        try:
            return await asyncio.wait_for(future, deadline - time.monotonic())
        except asyncio.TimeoutError:
            raise _late("no answer in time") from None


class _Stream:
    """One call, from its start to its end; it is not used again after that."""

    def __init__(
        self, call: grpc.aio.StreamStreamCall[bytes, bytes], server: ServerInfo, answered: Callable[[], None]
    ) -> None:
        self._ledger: Ledger[asyncio.Future[StepResult]] = Ledger(server)
        self._ended = False
        self._answered = answered
        self._call = call
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        # gRPC takes one write at a time, and ends the call if a write is cancelled: so a task of its own writes.
        self._writer = asyncio.create_task(self._write())
        self._reader = asyncio.create_task(self._read())

    def send(self, step: Step, deadline: float, future: asyncio.Future[StepResult]) -> bool:
        """Sends a step; False if the stream has ended and the step needs another one."""
        if self._ended:
            return False
        self._messages.put_nowait(self._ledger.enter(step, deadline - time.monotonic(), future))
        return True

    async def close(self, timeout: float) -> None:
        """Ends the call once all is answered, or after ``timeout`` seconds."""
        self._messages.put_nowait(None)
        done, _ = await asyncio.wait([self._reader], timeout=timeout)
        if not done:
            self._call.cancel()
            await asyncio.wait([self._reader])

    async def _write(self) -> None:
        # Why a write fails is the reader's to find out: it gets the status of the call.
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while (message := await self._messages.get()) is not None:
                await self._call.write(message)
            await self._call.done_writing()

    async def _read(self) -> None:
        ending: SamplerError = Unavailable("the server ended the stream", code="UNAVAILABLE")
        try:
            while isinstance(answer := await self._call.read(), bytes):
                future, outcome = self._ledger.settle(answer)
                self._answered()
                _resolve(future, outcome)
        except grpc.aio.AioRpcError as failure:
            ending = call_error(failure)
        except asyncio.CancelledError:
            ending = Cancelled("the call was cancelled", code="CANCELLED")
        except SamplerError as fault:
            ending = fault
            self._call.cancel()
        self._ended = True
        self._messages.put_nowait(None)
        for future in self._ledger.abandon():
            self._answered()
            _resolve(future, ending)


def _resolve(future: asyncio.Future[StepResult], outcome: StepResult | SamplerError) -> None:
    if future.done():  # cancelled by the caller
        return
    if isinstance(outcome, SamplerError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _late(message: str) -> DeadlineExceeded:
    return DeadlineExceeded(message, code="DEADLINE_EXCEEDED")
