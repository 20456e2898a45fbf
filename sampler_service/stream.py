"""One VerifyStream: steps in, answers out, in order; reading runs ahead of answering by a bounded number of steps.

A reader task takes messages as they come, decodes them and hands them to the dispatcher; the handler's own task writes
answers in the order of the messages. Between them lies a queue of answers to come. A slot is taken before a message is
read and given back once its answer is written, so a client that does not read its answers is held back by flow control.
"""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import Final, NamedTuple

import grpc

from sampler_client.v1 import sampler_pb2 as pb
from sampler_service.codec.kept import KeptState
from sampler_service.codec.parse import parse
from sampler_service.codec.result import fill_result
from sampler_service.codec.step import StepDecoder
from sampler_service.dispatch import Dispatcher
from sampler_service.errors import Reason, Refusal, internal, refuse
from sampler_service.lifecycle import Lifecycle, draining
from sampler_service.limits import Limits
from sampler_service.statuses import step_error
from sampler_service.steps import Ran

_log: Final = logging.getLogger(__name__)

_QUIET: Final = 0.2
"""Seconds without a message after which a draining stream ends. What its client sent before it could know of the drain
has arrived by then and was answered; what it sends after the end is told by the stream's status."""

_LONGEST_LINGER: Final = 2.0
"""Seconds for which a draining stream goes on refusing a client that will not stop sending."""


class _Running(NamedTuple):
    """The place of an answer that is still being computed."""

    step_id: int
    outcome: asyncio.Future[Ran]


class VerifyStream:
    """Runs one stream to its end.

    Args:
        context: Of the call; read and written as bytes.
        decoder: Turns messages into checked steps.
        dispatcher: Runs the steps.
        lifecycle: Says when to drain.
        limits: Of what is read ahead, and of what the stream may keep.
    """

    def __init__(
        self,
        context: grpc.aio.ServicerContext[bytes, bytes],
        *,
        decoder: StepDecoder,
        dispatcher: Dispatcher,
        lifecycle: Lifecycle,
        limits: Limits,
    ) -> None:
        self._context = context
        self._decoder = decoder
        self._dispatcher = dispatcher
        self._lifecycle = lifecycle
        self._kept = KeptState(limits)
        self._slots = asyncio.Semaphore(limits.max_read_ahead)
        self._answers: asyncio.Queue[_Running | bytes | None] = asyncio.Queue()
        self._running = 0
        self._last_read = 0.0

    async def run(self) -> None:
        """Answer every step read, until the client half-closes or the server drains.

        Raises:
            Refusal: DRAINING, once everything that was read is answered.
        """
        reader = asyncio.create_task(self._read())
        ender = asyncio.create_task(self._end_on_drain())
        try:
            await self._write()
            if not reader.done():
                raise draining()
            # A fault of the reader must not look like a stream that ended well.
            reader.result()
        finally:
            reader.cancel()
            ender.cancel()
            self._abandon()

    async def _read(self) -> None:
        try:
            while True:
                await self._slots.acquire()
                data: bytes | object = await self._context.read()
                if not isinstance(data, bytes):
                    # grpc.aio.EOF: the client has half-closed.
                    return
                self._last_read = perf_counter()
                self._answers.put_nowait(await self._begin(data, self._last_read))
        finally:
            self._answers.put_nowait(None)

    async def _write(self) -> None:
        while (answer := await self._answers.get()) is not None or not self._answers.empty():
            if answer is None:
                # A step came after the end was announced; its answer is owed all the same.
                self._answers.put_nowait(None)
                continue
            if isinstance(answer, _Running):
                response = await _answer(answer)
                self._running -= 1
            else:
                response = answer
            await self._context.write(response)
            self._slots.release()

    async def _begin(self, data: bytes, arrived: float) -> _Running | bytes:
        """Start a step. Whatever is wrong with it, the stream goes on."""
        step_id = 0
        try:
            message = parse(pb.VerifyStreamRequest, data)
            step_id = message.step_id
            self._lifecycle.check_open()
            if not message.HasField("step"):
                what = "step is missing; each message of the stream holds one step"
                raise refuse(Reason.FIELD_REQUIRED, what, field="step")
            step = self._decoder.decode(message.step, self._kept)
            await self._dispatcher.room()
            timeout = message.timeout_us * 1e-6 if message.timeout_us else None
            outcome = self._dispatcher.submit(step, arrived, timeout)
        except Refusal as refusal:
            return _refused(step_id, refusal)
        except Exception:  # noqa: BLE001  (a fault of ours is answered, never fatal)
            _log.exception("a step of a stream could not be read")
            return _refused(step_id, internal())
        self._running += 1
        return _Running(step_id, outcome)

    async def _end_on_drain(self) -> None:
        """Once the server drains and nothing more arrives, let the writer end after its last answer."""
        await self._lifecycle.drain_started()
        idle_since = perf_counter()
        while True:
            await asyncio.sleep(_QUIET / 4)
            now = perf_counter()
            if self._running:
                idle_since = now
            elif now - max(idle_since, self._last_read) > _QUIET or now - idle_since > _LONGEST_LINGER:
                self._answers.put_nowait(None)
                return

    def _abandon(self) -> None:
        """Give up what nobody will read: the client is gone, or the stream failed."""
        while not self._answers.empty():
            answer = self._answers.get_nowait()
            if isinstance(answer, _Running):
                answer.outcome.cancel()


async def _answer(running: _Running) -> bytes:
    try:
        ran = await running.outcome
    except Refusal as refusal:
        return _refused(running.step_id, refusal)
    response = pb.VerifyStreamResponse(step_id=running.step_id)
    fill_result(response.result, ran)
    return response.SerializeToString()


def _refused(step_id: int, refusal: Refusal) -> bytes:
    return pb.VerifyStreamResponse(step_id=step_id, error=step_error(refusal)).SerializeToString()
