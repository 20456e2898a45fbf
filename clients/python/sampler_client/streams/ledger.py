"""The steps of one stream that await their answers, in the order in which they were sent."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Final, Generic, TypeVar

from sampler_client.codec.request import encode_stream_request
from sampler_client.codec.response import decode_stream_response
from sampler_client.errors import NotFound, ResourceExhausted, SamplerError, ServerFault
from sampler_client.info import ServerInfo
from sampler_client.result import StepResult
from sampler_client.step import Step
from sampler_client.streams.kept_params import Kept, KeptParams

Waiter = TypeVar("Waiter")

MAX_KEPT_PARAMS: Final = 1024
"""Parameter sets that a stream has the server keep at most, whatever the server allows."""


class Ledger(Generic[Waiter]):
    """Pairs answers with steps and keeps track of what the server keeps. Not safe to share: its owner locks.

    Args:
        server: What the server can do: whether it keeps parameter sets, and how large a message may be.
    """

    def __init__(self, server: ServerInfo) -> None:
        keeps = "kept_state" in server.features
        self._kept = KeptParams(min(server.limits.max_kept_params, MAX_KEPT_PARAMS) if keeps else 0)
        self._max_bytes = server.limits.max_receive_message_bytes
        self._numbers = itertools.count(1)
        self._waiting: deque[tuple[int, Waiter, list[Kept]]] = deque()

    def enter(self, step: Step, timeout: float, waiter: Waiter) -> bytes:
        """Writes a step down as sent and returns its message, which must go out in the order of these calls.

        Args:
            step: The step.
            timeout: Seconds within which it is worth doing.
            waiter: Comes back with the answer.

        Raises:
            InvalidStep: The step cannot be encoded.
            ResourceExhausted: The message is larger than the server takes; sent, it would end the stream.
        """
        columns, kept = self._kept.plan(step)
        number = next(self._numbers)
        timeout_us = min(max(int(timeout * 1e6), 1), 2**64 - 1)
        message = encode_stream_request(step, step_id=number, timeout_us=timeout_us, params=columns)
        if 0 < self._max_bytes < len(message):
            text = f"the step takes {len(message)} bytes, the server receives at most {self._max_bytes}"
            raise ResourceExhausted(text, code="RESOURCE_EXHAUSTED")
        self._waiting.append((number, waiter, kept))
        return message

    def settle(self, answer: bytes) -> tuple[Waiter, StepResult | SamplerError]:
        """Strikes out the oldest step and says how it ended.

        Raises:
            ServerFault: The answer cannot be read, or does not belong to that step: nothing after it can be trusted.
        """
        number, outcome = decode_stream_response(answer)
        # 0 stands for a message in which the server could not read the number.
        if not self._waiting or number not in (0, self._waiting[0][0]):
            raise ServerFault(f"the answer to step {number} was not due", code="INTERNAL", reason="ANSWER_NOT_DUE")
        _, waiter, kept = self._waiting.popleft()
        if isinstance(outcome, StepResult):
            self._kept.confirm(kept)
        elif isinstance(outcome, NotFound):
            self._kept.forget()
        return waiter, outcome

    def abandon(self) -> list[Waiter]:
        """Strikes out all steps; what waited for them, oldest first."""
        waiters = [waiter for _, waiter, _ in self._waiting]
        self._waiting.clear()
        return waiters
