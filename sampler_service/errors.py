"""Every reason for which the service refuses something: one table of code, cause and remedy.

The wire, the step file and ``docs/errors.md`` all read this table, so a reason that is not in it cannot be sent.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import grpc

from sampler_kernels.refusal import Reason as CoreReason
from sampler_kernels.refusal import StepRefused

DOMAIN: Final = "sampler.v1"
"""Domain of ``google.rpc.ErrorInfo``: reasons are unique within it."""


class Reason(str, enum.Enum):
    """Reasons of the service itself; those of the core are ``sampler_kernels.refusal.Reason``. Stable names."""

    MALFORMED_MESSAGE = "MALFORMED_MESSAGE"
    FIELD_REQUIRED = "FIELD_REQUIRED"
    ENUM_UNKNOWN = "ENUM_UNKNOWN"
    ID_LENGTH_INVALID = "ID_LENGTH_INVALID"
    TENSOR_SHAPE_INVALID = "TENSOR_SHAPE_INVALID"
    TENSOR_STRIDE_INVALID = "TENSOR_STRIDE_INVALID"
    TENSOR_LENGTH_MISMATCH = "TENSOR_LENGTH_MISMATCH"
    TENSOR_OFFSET_INVALID = "TENSOR_OFFSET_INVALID"
    SEED_WITHOUT_POSITION = "SEED_WITHOUT_POSITION"
    LIMIT_EXCEEDED = "LIMIT_EXCEEDED"
    KEPT_STATE_NEEDS_STREAM = "KEPT_STATE_NEEDS_STREAM"
    KEPT_STATE_NOT_FOUND = "KEPT_STATE_NOT_FOUND"
    KEPT_STATE_FULL = "KEPT_STATE_FULL"
    STEP_DEADLINE_EXCEEDED = "STEP_DEADLINE_EXCEEDED"
    QUEUE_FULL = "QUEUE_FULL"
    QUEUE_BYTES_FULL = "QUEUE_BYTES_FULL"
    TOO_MANY_STREAMS = "TOO_MANY_STREAMS"
    DRAINING = "DRAINING"
    INTERNAL_ERROR = "INTERNAL_ERROR"


@dataclass(frozen=True)
class Entry:
    """One row of the table.

    Attributes:
        code: The gRPC status code that goes with the reason, always the same one.
        cause: What is the case, in a sentence.
        remedy: What the caller can do about it.
        retry_after_ms: When a retry makes sense, 0 where it does not.
    """

    code: grpc.StatusCode
    cause: str
    remedy: str
    retry_after_ms: int = 0


_INVALID = grpc.StatusCode.INVALID_ARGUMENT
_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED

TABLE: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        Reason.MALFORMED_MESSAGE.value: Entry(
            _INVALID,
            "The bytes of the message are not a protobuf message of the type that the call takes.",
            "Generate stubs from `protos/sampler/v1/sampler.proto` and send what they serialise.",
        ),
        Reason.FIELD_REQUIRED.value: Entry(
            _INVALID, "A field without a default is missing.", "Set the field that the message names."
        ),
        Reason.ENUM_UNKNOWN.value: Entry(
            _INVALID,
            "An enum holds a number that the contract does not list.",
            "Use a listed value; a newer client may know values that this server does not: ask `GetServerInfo`.",
        ),
        Reason.ID_LENGTH_INVALID.value: Entry(
            _INVALID,
            "A session, region or event id has the wrong number of bytes.",
            "Send the id exactly as the server gave it: 32 bytes for a session, 16 for a region or an event.",
        ),
        Reason.TENSOR_SHAPE_INVALID.value: Entry(
            _INVALID,
            "A tensor has the wrong number of dimensions, a negative extent, or is too large to address.",
            "Give the one or two extents that the field's comment in the proto names.",
        ),
        Reason.TENSOR_STRIDE_INVALID.value: Entry(
            _INVALID,
            "A row stride is negative, shorter than a row, or given for a tensor of one dimension.",
            "Leave `row_stride` at 0 for dense rows, else give at least the number of columns, in elements.",
        ),
        Reason.TENSOR_LENGTH_MISMATCH.value: Entry(
            _INVALID,
            "A tensor's inline bytes are not exactly as long as its dtype, shape and row stride say, or are missing.",
            "Send `(rows - 1) * row_stride + columns` elements, little-endian, with nothing before or after them.",
        ),
        Reason.TENSOR_OFFSET_INVALID.value: Entry(
            _INVALID,
            "A tensor's offset into its region is not a multiple of its element size.",
            "Align the tensor to its element size within the region.",
        ),
        Reason.SEED_WITHOUT_POSITION.value: Entry(
            _INVALID,
            "A request has a seed and no position, so the same randomness would serve every step of its sequence.",
            "Send `positions`: the absolute index in the sequence of the token that the first row predicts.",
        ),
        Reason.LIMIT_EXCEEDED.value: Entry(
            _INVALID,
            "A step holds more of something than this server takes.",
            "Stay within the limits that `GetServerInfo` tells; split the step if need be.",
        ),
        Reason.KEPT_STATE_NEEDS_STREAM.value: Entry(
            _INVALID,
            "A unary step without a session keeps or uses something under an id, and there is nowhere to keep it.",
            "Send the step over `VerifyStream`, name a session, or send the thing itself.",
        ),
        Reason.KEPT_STATE_NOT_FOUND.value: Entry(
            grpc.StatusCode.NOT_FOUND,
            "Nothing is kept under the id that the step names: it was never kept, was forgotten, or its stream ended.",
            "Send the thing itself, with an id to keep it under, once in every stream.",
        ),
        Reason.KEPT_STATE_FULL.value: Entry(
            _EXHAUSTED,
            "The stream or session keeps as many things of this kind as the server allows.",
            "Forget what is no longer used (`Step.forget`), or keep under an id in use, which replaces.",
        ),
        Reason.STEP_DEADLINE_EXCEEDED.value: Entry(
            grpc.StatusCode.DEADLINE_EXCEEDED,
            "The step's time ran out before it was done.",
            "Allow more time, or send fewer steps at once; `Timing.queue_us` says how long steps wait.",
        ),
        Reason.QUEUE_FULL.value: Entry(
            _EXHAUSTED,
            "As many steps are waiting as the server admits.",
            "Retry with backoff, or use `VerifyStream`, which is slowed down instead of refused.",
            retry_after_ms=20,
        ),
        Reason.QUEUE_BYTES_FULL.value: Entry(
            _EXHAUSTED,
            "The messages of the steps that wait hold as much memory as the server gives them.",
            "Retry with backoff, send fewer large steps at once, or raise `max_queued_mib`.",
            retry_after_ms=20,
        ),
        Reason.TOO_MANY_STREAMS.value: Entry(
            _EXHAUSTED,
            "As many streams are open as the server admits.",
            "Close streams that are not used, or raise `max_streams`.",
            retry_after_ms=1000,
        ),
        Reason.DRAINING.value: Entry(
            grpc.StatusCode.UNAVAILABLE,
            "The server is shutting down: it answers what it has received and takes nothing new.",
            "Retry elsewhere, or here after the delay; a step with a seed gives the same result there.",
            retry_after_ms=1000,
        ),
        Reason.INTERNAL_ERROR.value: Entry(
            grpc.StatusCode.INTERNAL,
            "A fault of the server: a check or an operation failed in a way it should not.",
            "Report it, with the step as a step file if you can; the server's log holds the details.",
        ),
        CoreReason.EMPTY_BATCH.value: Entry(
            _INVALID, "The step has no requests.", "Send at least one entry of `draft_lengths`; 0 is a legal length."
        ),
        CoreReason.EMPTY_VOCABULARY.value: Entry(
            _INVALID, "Logits have no columns.", "Send rows of at least one logit."
        ),
        CoreReason.SHAPE_MISMATCH.value: Entry(
            _INVALID,
            "Two parts of the step disagree about a count.",
            "Every request needs `draft_lengths[r] + 1` target rows and `draft_lengths[r]` draft ids and draft rows.",
        ),
        CoreReason.LAYOUT_UNSUPPORTED.value: Entry(
            _INVALID,
            "A tensor has the wrong number of dimensions, or lies on another device than its companions.",
            "Send matrices with contiguous rows, all of a step on one device.",
        ),
        CoreReason.DTYPE_UNSUPPORTED.value: Entry(
            _INVALID,
            "A dtype that its place does not take, or two where the step needs one.",
            "Logits are float32, float16 or bfloat16, ids int32 or int64, log-sum-exps float64.",
        ),
        CoreReason.TOO_MANY_DRAFT_TOKENS.value: Entry(
            _INVALID,
            "A request has more draft tokens than a step may hold.",
            "Send at most 128 draft tokens a request.",
        ),
        CoreReason.TOKEN_ID_OUT_OF_RANGE.value: Entry(
            _INVALID,
            "A token id lies outside its vocabulary.",
            "Check that ids are target ids; -1 is legal for draft tokens only, and means that none was drawn there.",
        ),
        CoreReason.DRAFT_TOKEN_NOT_IN_DRAFT_VOCABULARY.value: Entry(
            _INVALID,
            "Draft logits came with the request, and its draft token has no column in them.",
            "Send the id that was drawn from these logits, in target ids; check `draft_id_map`.",
        ),
        CoreReason.DUPLICATE_ID_IN_MAP.value: Entry(
            _INVALID,
            "A draft id map names one target id twice.",
            "Send target ids, one for each draft column, all distinct (not a table of offsets).",
        ),
        CoreReason.PARAMETER_OUT_OF_RANGE.value: Entry(
            _INVALID, "A parameter lies outside its range.", "The message names the field, its value and the range."
        ),
        CoreReason.PARAMETER_REQUIRED.value: Entry(
            _INVALID, "The method needs a parameter that is missing.", "Set the parameter that the message names."
        ),
        CoreReason.PARAMETER_CONFLICT.value: Entry(
            _INVALID, "Two parameters exclude each other.", "Leave out one of the two that the message names."
        ),
        CoreReason.INDEX_OUT_OF_RANGE.value: Entry(
            _INVALID,
            "An index column points past the table it selects from.",
            "Index entries count from 0; -1 means none where the field's comment says so.",
        ),
        CoreReason.NOT_IMPLEMENTED.value: Entry(
            grpc.StatusCode.UNIMPLEMENTED,
            "The step is legal, and asks for something that this server has not built.",
            "Ask `GetServerInfo` what is built; leave the feature out or use a newer server.",
        ),
    }
)
"""Reason -> what it means. Keys are the names that go over the wire."""


@dataclass(eq=False)
class Refusal(Exception):
    """What a caller gets instead of a result. Carries no handle, key or session id.

    Attributes:
        reason: A key of :data:`TABLE`.
        message: What was wrong, what was expected, and where.
        field: Path of the field at fault from the step on, such as ``params[1].top_p``.
        request: Index of the request at fault.
        position: Draft position or row within the request.
        metadata: Further names and numbers of the message, for programs.
    """

    reason: str
    message: str
    field: str | None = None
    request: int | None = None
    position: int | None = None
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def entry(self) -> Entry:
        """The row of the table."""
        return TABLE[self.reason]

    def released(self) -> Refusal:
        """The same refusal without the frames that it came through.

        They hold the refused step, and the refusal itself: a cycle, which would stay until the collector looks for it.
        """
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self

    def __str__(self) -> str:
        """Reason and message on one line."""
        return f"{self.reason}: {self.message}"


def refuse(reason: Reason | CoreReason, message: str, *, field: str | None = None) -> Refusal:
    """A refusal of the whole step, or of one field of it."""
    return Refusal(reason.value, message, field)


def of_core(refused: StepRefused) -> Refusal:
    """The core's refusal in the words of the service."""
    return Refusal(refused.reason.value, refused.message, refused.field, refused.request, refused.position)


def internal() -> Refusal:
    """What a client hears of a fault of the server; the log holds the rest."""
    return refuse(Reason.INTERNAL_ERROR, "the step failed in the server, through no fault of the caller")


def too_late() -> Refusal:
    """What is said of a step that was not done in time."""
    return refuse(Reason.STEP_DEADLINE_EXCEEDED, "the step was not done within the time that its caller gave it")
