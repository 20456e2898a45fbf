"""The client for threads: one call, one result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import grpc

from sampler_client.channel import (
    DEFAULT_TIMEOUT,
    GET_SERVER_INFO,
    MAX_ANSWER_BYTES,
    MAX_IN_FLIGHT,
    VERIFY,
    VERIFY_STREAM,
    ChannelOptions,
    as_is,
    channel_options,
)
from sampler_client.codec.info import decode_info
from sampler_client.codec.request import encode_verify_request
from sampler_client.codec.response import decode_verify_response
from sampler_client.codec.status import call_error
from sampler_client.errors import Cancelled
from sampler_client.info import ServerInfo
from sampler_client.result import StepResult
from sampler_client.retry import NO_RETRIES, Attempts, RetryPolicy
from sampler_client.session import Session
from sampler_client.step import Step

if TYPE_CHECKING:
    from typing_extensions import Self


class SamplerClient:
    """A connection to a sampler service. Safe to share between threads; a context manager.

    Args:
        address: A gRPC target: ``unix:/path`` or ``host:port``.
        timeout: Seconds within which a call must end, retries included, where the call does not say.
        retry: When to try again. Only calls that read and steps whose requests all carry a seed are retried.
        credentials: For TLS (``grpc.ssl_channel_credentials``), possibly composed with a token; None: plain text.
        metadata: Sent with every call, as (key, value) pairs.
        max_answer_bytes: Largest answer taken.
        options: Further gRPC channel options.

    Nothing is connected before the first call.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008  (immutable)
        credentials: grpc.ChannelCredentials | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        options: ChannelOptions = (),
    ) -> None:
        self.address = address
        self._timeout = timeout
        self._retry = retry
        self._metadata = tuple(metadata)
        self._closed = False
        chosen = channel_options(max_answer_bytes, options)
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options=chosen)
        else:
            self._channel = grpc.secure_channel(address, credentials, options=chosen)
        self._verify = self._channel.unary_unary(VERIFY, as_is, as_is)
        self._verify_stream = self._channel.stream_stream(VERIFY_STREAM, as_is, as_is)
        self._get_server_info = self._channel.unary_unary(GET_SERVER_INFO, as_is, as_is)

    def verify(self, step: Step, *, timeout: float | None = None) -> StepResult:
        """Verifies one step.

        Args:
            step: The step. Its arrays are read before the call returns and never written to.
            timeout: Seconds within which the call must end, retries included.

        Returns:
            The result. Single requests may still have failed: see ``RequestResult.status``.

        Raises:
            InvalidStep: The step is wrong, as the service or already the encoder found; ``fields`` says where.
            NotImplementedByServer: The step is legal, but asks for something that this server has not built.
            ResourceExhausted: The message is larger than the server takes, or too many steps wait there.
            Unavailable: No server there, or it is starting or ending.
            DeadlineExceeded: Not done in time.
            SamplerError: Anything else.
        """
        request = encode_verify_request(step)
        policy = self._retry if step.idempotent else NO_RETRIES
        return decode_verify_response(self._call(self._verify, request, timeout, policy))

    def server_info(self, *, timeout: float | None = None) -> ServerInfo:
        """Asks what the server is and can do: version, device, methods, features, limits.

        Raises:
            Unavailable: No server there, or it is starting or ending.
            DeadlineExceeded: No answer in time.
            SamplerError: Anything else.
        """
        return decode_info(self._call(self._get_server_info, b"", timeout, self._retry))

    def session(self, *, timeout: float | None = None, max_in_flight: int = MAX_IN_FLIGHT) -> Session:
        """Opens a stream for the hot path: steps sent ahead of their answers, parameters sent only when they change.

        The session's calls go through this client; close the session first. Nothing is sent before its first step.

        Args:
            timeout: Seconds a step of the session may take where the call does not say; None: as this client.
            max_in_flight: Steps sent ahead of their answers at most.
        """
        return Session(
            lambda messages: self._verify_stream(messages, metadata=self._metadata),
            lambda seconds: self.server_info(timeout=seconds),
            timeout=self._timeout if timeout is None else timeout,
            retry=self._retry,
            max_in_flight=max_in_flight,
        )

    def close(self) -> None:
        """Ends the connection; calls still running raise :class:`~sampler_client.errors.Cancelled`."""
        self._closed = True
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(
        self,
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes],
        request: bytes,
        timeout: float | None,
        policy: RetryPolicy,
    ) -> bytes:
        if self._closed:
            raise Cancelled("the client is closed", code="CANCELLED")
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        attempts = Attempts(policy, deadline)
        while True:
            try:
                return method(request, timeout=deadline - time.monotonic(), metadata=self._metadata)
            except grpc.RpcError as failure:
                wait = attempts.wait_after(call_error(failure))
            time.sleep(wait)


def verify(address: str, step: Step, *, timeout: float = DEFAULT_TIMEOUT) -> StepResult:
    """Verifies one step over a connection of its own. An engine keeps a :class:`SamplerClient` instead.

    Args:
        address: A gRPC target: ``unix:/path`` or ``host:port``.
        step: The step.
        timeout: Seconds within which the call must end, retries included.

    Raises:
        SamplerError: As :meth:`SamplerClient.verify`.
    """
    with SamplerClient(address) as client:
        return client.verify(step, timeout=timeout)
