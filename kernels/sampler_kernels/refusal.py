"""What the core says when it will not run a step: one exception, one reason each, always naming the place."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Reason(str, enum.Enum):
    """Why a step was refused. The names are stable: they go over the wire as they are."""

    EMPTY_BATCH = "EMPTY_BATCH"
    """A step without requests."""
    EMPTY_VOCABULARY = "EMPTY_VOCABULARY"
    """Logits with no columns."""
    SHAPE_MISMATCH = "SHAPE_MISMATCH"
    """Two parts of the step disagree about a count (rows against draft lengths, ids against lengths, ...)."""
    LAYOUT_UNSUPPORTED = "LAYOUT_UNSUPPORTED"
    """A tensor that is not a matrix with unit last stride, or lies on another device than its companions."""
    DTYPE_UNSUPPORTED = "DTYPE_UNSUPPORTED"
    """A dtype outside the supported set, or two dtypes where one is needed."""
    TOO_MANY_DRAFT_TOKENS = "TOO_MANY_DRAFT_TOKENS"
    """A request with more than ``MAX_DRAFT_TOKENS`` draft tokens."""
    TOKEN_ID_OUT_OF_RANGE = "TOKEN_ID_OUT_OF_RANGE"
    """A token id that its vocabulary does not have."""
    DRAFT_TOKEN_NOT_IN_DRAFT_VOCABULARY = "DRAFT_TOKEN_NOT_IN_DRAFT_VOCABULARY"
    """Draft logits are present, and the draft token has no column in them."""
    DUPLICATE_ID_IN_MAP = "DUPLICATE_ID_IN_MAP"
    """A draft id map that names one target id twice."""
    PARAMETER_OUT_OF_RANGE = "PARAMETER_OUT_OF_RANGE"
    """A sampling parameter outside its range."""
    PARAMETER_REQUIRED = "PARAMETER_REQUIRED"
    """A parameter that the chosen method cannot do without."""
    PARAMETER_CONFLICT = "PARAMETER_CONFLICT"
    """Two parameters that exclude each other."""
    INDEX_OUT_OF_RANGE = "INDEX_OUT_OF_RANGE"
    """An index column (params, draft blocks, masks, ...) that points past its table."""
    NOT_IMPLEMENTED = "NOT_IMPLEMENTED"
    """Legal, and not built yet on this backend. The only reason whose code is UNIMPLEMENTED."""


@dataclass(eq=False)  # compared by identity like any exception, and so hashable
class StepRefused(ValueError):
    """A step that was not run, because it is wrong or not yet supported. Nothing was computed, nothing written.

    Args:
        reason: The stable reason.
        message: What was wrong, what was expected, and where.
        field: The field at fault, by its name on the wire, e.g. ``temperature`` or ``draft_token_ids``.
        request: Index of the request in the batch, where one request is at fault.
        position: Index within the request (a draft position or row), where one is at fault.
    """

    reason: Reason
    message: str
    field: str | None = None
    request: int | None = None
    position: int | None = None

    def __str__(self) -> str:
        """Reason and message on one line."""
        return f"{self.reason.value}: {self.message}"

    @property
    def code(self) -> str:
        """The gRPC status code by name: ``INVALID_ARGUMENT``, or ``UNIMPLEMENTED`` for what is not built yet."""
        return "UNIMPLEMENTED" if self.reason is Reason.NOT_IMPLEMENTED else "INVALID_ARGUMENT"
