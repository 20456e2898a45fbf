"""What the client raises: one class for each kind of refusal, each with the reason that the service gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class FieldViolation:
    """One field at fault.

    Attributes:
        field: Its path below the step, such as ``draft_token_ids`` or ``params[1].top_p``.
        description: What is wrong with it and what would be right.
    """

    field: str
    description: str


class SamplerError(Exception):
    """A step or call that has no result.

    Catch the subclass that says what to do; this class itself stands for any code without a subclass of its own.

    Attributes:
        code: Name of the gRPC status code, such as ``"INVALID_ARGUMENT"``.
        reason: Stable name of the cause, such as ``"TOKEN_ID_OUT_OF_RANGE"``; ``docs/errors.md`` lists all. Where gRPC
            itself refused (message too large, no connection, no such method) there is none, and it equals ``code``.
        message: For people: what was wrong, what was expected, which request and field.
        fields: Fields at fault, if the cause is in some.
        metadata: For programs: numbers and names in the message, such as request, field, value and range.
        retry_delay: Seconds after which a retry makes sense, or None if the service did not say.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        reason: str = "",
        fields: Sequence[FieldViolation] = (),
        metadata: Mapping[str, str] = MappingProxyType({}),
        retry_delay: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason or code
        self.message = message
        self.fields = tuple(fields)
        self.metadata = dict(metadata)
        self.retry_delay = retry_delay

    def __str__(self) -> str:
        """Code and message; the reason too where the message does not begin with it."""
        said = (
            self.message
            if self.reason in (self.code, self.message.partition(":")[0])
            else f"{self.reason}: {self.message}"
        )
        return f"{self.code}: {said}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.__dict__.copy())


class InvalidStep(SamplerError):
    """INVALID_ARGUMENT: the step or call is wrong as it stands; ``fields`` says where. Sending it again is useless."""


class NotImplementedByServer(SamplerError):
    """UNIMPLEMENTED: legal, but this server has not built it; ``server_info()`` says what it has."""


class NotFound(SamplerError):
    """NOT_FOUND: a session, region, event or kept thing that the server does not have (any more)."""


class FailedPrecondition(SamplerError):
    """FAILED_PRECONDITION: not in the present state of the server or session."""


class ResourceExhausted(SamplerError):
    """RESOURCE_EXHAUSTED: a message too large, or a limit on what is held or queued at the same time."""


class Unavailable(SamplerError):
    """UNAVAILABLE: no connection, or the server is starting or draining. Worth another try."""


class DeadlineExceeded(SamplerError):
    """DEADLINE_EXCEEDED: not done in time; the step may have run or not."""


class Cancelled(SamplerError):
    """CANCELLED: ended by this side, or the client was closed."""


class Denied(SamplerError):
    """UNAUTHENTICATED or PERMISSION_DENIED: the server does not accept this caller."""


class ServerFault(SamplerError):
    """INTERNAL, UNKNOWN or DATA_LOSS: a fault of the server or of the transport, never of the step."""


_CLASSES: Mapping[str, type[SamplerError]] = MappingProxyType(
    {
        "INVALID_ARGUMENT": InvalidStep,
        "UNIMPLEMENTED": NotImplementedByServer,
        "NOT_FOUND": NotFound,
        "FAILED_PRECONDITION": FailedPrecondition,
        "RESOURCE_EXHAUSTED": ResourceExhausted,
        "UNAVAILABLE": Unavailable,
        "DEADLINE_EXCEEDED": DeadlineExceeded,
        "CANCELLED": Cancelled,
        "UNAUTHENTICATED": Denied,
        "PERMISSION_DENIED": Denied,
        "INTERNAL": ServerFault,
        "UNKNOWN": ServerFault,
        "DATA_LOSS": ServerFault,
    }
)


def error_class(code: str) -> type[SamplerError]:
    """The class to raise for a status code by name; :class:`SamplerError` where there is no special one."""
    return _CLASSES.get(code, SamplerError)


def invalid(reason: str, field: str, message: str) -> InvalidStep:
    """A step that this side refuses before sending it, said as the service would say it.

    Args:
        reason: One of the reasons that the service uses for the same mistake.
        field: Path of the field at fault.
        message: What is wrong and what would be right, naming the field.
    """
    return InvalidStep(
        f"{reason}: {message}",
        code="INVALID_ARGUMENT",
        reason=reason,
        fields=[FieldViolation(field, message)],
        metadata={"field": field},
    )


def _rebuild(kind: type[SamplerError], message: str, state: dict[str, Any]) -> SamplerError:
    """Makes an error again from its parts, for pickle."""
    error = kind(message, code=state["code"])
    error.__dict__.update(state)
    return error
