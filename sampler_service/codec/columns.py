"""Per-request columns of a step: lists that are either absent or one entry a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from sampler_kernels.refusal import Reason as CoreReason
from sampler_service.errors import Reason, refuse

T = TypeVar("T")


def column(values: Sequence[T], field: str, batch: int) -> list[T] | None:
    """The entries, or None if the column was left out.

    Raises:
        Refusal: SHAPE_MISMATCH.
    """
    if not values:
        return None
    check_count(len(values), field, batch, "one for each request, or none at all")
    return list(values)


def check_size(size: int, field: str, most: int) -> None:
    """Refuse more entries than this server takes.

    Raises:
        Refusal: LIMIT_EXCEEDED.
    """
    if size > most:
        what = f"{field} has {size} entries; this server takes at most {most}"
        raise refuse(Reason.LIMIT_EXCEEDED, what, field=field)


def check_count(count: int, field: str, wanted: int, what_for: str) -> None:
    """Refuse a number of entries that the rest of the step contradicts.

    Raises:
        Refusal: SHAPE_MISMATCH.
    """
    if count != wanted:
        what = f"{field} has {count} entries; it must have {wanted}, {what_for}"
        raise refuse(CoreReason.SHAPE_MISMATCH, what, field=field)
