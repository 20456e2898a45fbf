"""Who sends the steps: callers of the service, and of the echo server in the service's place.

Each caller has a connection of its own, as every engine has. Callers of the service use the client's public interface,
and their calls end when an engine could go on: with the tokens in its hands. Callers of the echo send messages that
were built beforehand and drop the answers: gRPC and nothing else.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import grpc

from sampler_client import NO_RETRIES, SamplerClient, SamplerError, Status, Step, StepResult, Timing
from sampler_client.codec.request import encode_stream_request, encode_verify_request

_SERVICE: Final = "/sampler.v1.SamplerService"

OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # Else all channels of a process to one address share one connection.
    ("grpc.use_local_subchannel_pool", 1),
)


class Answer(NamedTuple):
    """What is kept of an answer.

    Attributes:
        tokens: Emitted in the step.
        failed: Requests of the step whose status is not OK.
        timing: The server's; None from the echo.
    """

    tokens: int
    failed: int
    timing: Timing | None


class CallFailed(Exception):
    """A call without an answer; ``code`` is the name of gRPC's status."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Caller(Protocol):
    """Sends one step after the other; used by one thread."""

    def call(self, number: int) -> Answer:
        """Sends a step and waits for its answer.

        Args:
            number: Of the call; the steps take turns.

        Raises:
            CallFailed: There is none.
        """

    def close(self) -> None:
        """Ends the connection."""


class ServiceCaller:
    """Calls the service.

    Args:
        address: Of the service.
        steps: To send in turn.
        stream: Over one stream; else each step is a unary call.
        timeout: Seconds for each call.
    """

    def __init__(self, address: str, steps: Sequence[Step], *, stream: bool, timeout: float) -> None:
        self._steps = steps
        # Retries would hide what is to be measured.
        self._client = SamplerClient(address, timeout=timeout, retry=NO_RETRIES, options=OPTIONS)
        self._session = self._client.session() if stream else None
        self._verify = self._session.verify if self._session else self._client.verify

    def call(self, number: int) -> Answer:
        """Sends a step and reads its tokens; see :class:`Caller`."""
        try:
            result = self._verify(self._steps[number % len(self._steps)])
        except SamplerError as error:
            raise CallFailed(error.code, str(error)) from error
        return _read(result)

    def close(self) -> None:
        """Ends the connection."""
        if self._session:
            self._session.close()
        self._client.close()


def _read(result: StepResult) -> Answer:
    failed = int((result.status != Status.OK).sum())
    return Answer(len(result.token_ids), failed, result.timing)


class EchoCaller:
    """Calls the echo server with gRPC's own interface.

    Args:
        address: Of the echo server.
        messages: To send in turn.
        stream: Over one stream; else each message is a unary call.
        timeout: Seconds for each unary call.
    """

    def __init__(self, address: str, messages: Sequence[bytes], *, stream: bool, timeout: float) -> None:
        self._messages = messages
        self._timeout = timeout
        self._channel = grpc.insecure_channel(address, options=OPTIONS)
        self._unary = self._channel.unary_unary(f"{_SERVICE}/Verify", _as_is, _as_is)
        self._sent: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        open_stream = self._channel.stream_stream(f"{_SERVICE}/VerifyStream", _as_is, _as_is)
        self._answers = iter(open_stream(iter(self._sent.get, None))) if stream else None

    def call(self, number: int) -> Answer:
        """Sends a message and waits for the canned answer; see :class:`Caller`."""
        message = self._messages[number % len(self._messages)]
        try:
            if self._answers is None:
                self._unary(message, timeout=self._timeout)
            else:
                self._sent.put(message)
                next(self._answers)
        except grpc.RpcError as error:
            raise _failed(error) from error
        return Answer(0, 0, None)

    def close(self) -> None:
        """Ends the connection."""
        self._sent.put(None)
        self._channel.close()


def messages_of(steps: Sequence[Step], *, stream: bool) -> list[bytes]:
    """The messages in which the client sends the steps."""
    if stream:
        return [encode_stream_request(step, step_id=1, timeout_us=1_000_000) for step in steps]
    return [encode_verify_request(step) for step in steps]


def answer_bytes(address: str, messages: Sequence[bytes], *, stream: bool, timeout: float) -> int:
    """Median size of the service's answers to some messages.

    Raises:
        CallFailed: The service cannot be reached, or does not answer.
    """
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        try:
            if stream:
                call = channel.stream_stream(f"{_SERVICE}/VerifyStream", _as_is, _as_is)
                sizes = [len(answer) for answer in call(iter(messages), timeout=timeout)]
            else:
                unary = channel.unary_unary(f"{_SERVICE}/Verify", _as_is, _as_is)
                sizes = [len(unary(message, timeout=timeout)) for message in messages]
        except grpc.RpcError as error:
            raise _failed(error) from error
    return sorted(sizes)[len(sizes) // 2]


def _failed(error: grpc.RpcError) -> CallFailed:
    # The errors of grpcio's calls are calls too, which their type does not say.
    assert isinstance(error, grpc.Call)
    return CallFailed(error.code().name, error.details() or str(error))


def _as_is(data: bytes) -> bytes:
    return data
