"""One VerifyStream: steps in, answers out, in order; reading runs ahead of answering by a bounded number of steps.

A reader task takes messages as they come, decodes them and hands them to the dispatcher; the handler's own task writes
answers in the order of the messages. Between them lies a line of answers, to be filled in as steps end. A slot is taken
before a message is read and given back once its answer is written, so a client that does not read its answers is held
back by flow control.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from time import perf_counter
from typing import Final

import grpc

from sampler_client.v1 import sampler_pb2 as pb
from sampler_service.codec.kept import KeptState
from sampler_service.codec.parse import parse
from sampler_service.codec.result import fill_result
from sampler_service.codec.step import StepDecoder
from sampler_service.dispatch import Dispatcher, Pending
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


class _Answer:
    """The place of a step's answer among those of its stream."""

    __slots__ = ("pending", "response", "step_id")

    def __init__(self, step_id: int) -> None:
        self.step_id = step_id
        self.response: bytes | None = None
        self.pending: Pending | None = None


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
        self._answers: deque[_Answer] = deque()
        self._ready = asyncio.Event()
        self._last_read = 0.0
        self._ending = False

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
                await self._begin(data, self._last_read)
        finally:
            self._end()

    async def _write(self) -> None:
        """Write answers in the order of their steps, woken only when the first in line is there."""
        while True:
            while self._answers and (response := self._answers[0].response) is not None:
                self._answers.popleft()
                await self._context.write(response)
                self._slots.release()
            if self._ending and not self._answers:
                return
            self._ready.clear()
            await self._ready.wait()

    async def _begin(self, data: bytes, arrived: float) -> None:
        """Start a step. Whatever is wrong with it, the stream goes on."""
        answer = _Answer(0)
        self._answers.append(answer)
        try:
            message, tensors = parse(pb.VerifyStreamRequest, data)
            answer.step_id = message.step_id
            self._lifecycle.check_open()
            if not message.HasField("step"):
                what = "step is missing; each message of the stream holds one step"
                raise refuse(Reason.FIELD_REQUIRED, what, field="step")
            checked = self._decoder.decode(message.step, tensors, self._kept)
            size, timeout = len(data), message.timeout_us * 1e-6 if message.timeout_us else None
            if not self._dispatcher.admission.try_enter(size):
                await self._dispatcher.admission.enter(size, timeout)
            answer.pending = self._dispatcher.submit(checked, size, arrived, timeout, partial(self._finish, answer))
        except Refusal as refusal:
            self._finish(answer, refusal.released())
        except Exception:  # noqa: BLE001  (a fault of ours is answered, never fatal)
            _log.exception("a step of a stream could not be read")
            self._finish(answer, internal())

    def _finish(self, answer: _Answer, outcome: Ran | Refusal) -> None:
        answer.pending = None
        message = pb.VerifyStreamResponse(step_id=answer.step_id)
        if isinstance(outcome, Refusal):
            message.error.CopyFrom(step_error(outcome))
        else:
            fill_result(message.result, outcome)
        answer.response = message.SerializeToString()
        if self._answers and self._answers[0] is answer:
            self._ready.set()

    async def _end_on_drain(self) -> None:
        """Once the server drains and nothing more arrives, let the writer end after its last answer."""
        await self._lifecycle.drain_started()
        idle_since = perf_counter()
        while True:
            await asyncio.sleep(_QUIET / 4)
            now = perf_counter()
            # A step that waits for room is owed an answer as much as one that runs.
            if any(answer.response is None for answer in self._answers):
                idle_since = now
            elif now - max(idle_since, self._last_read) > _QUIET or now - idle_since > _LONGEST_LINGER:
                self._end()
                return

    def _end(self) -> None:
        self._ending = True
        self._ready.set()

    def _abandon(self) -> None:
        """Give up what nobody will read: the client is gone, or the stream failed."""
        for answer in self._answers:
            if answer.pending is not None:
                answer.pending.abandon()
        self._answers.clear()
