"""The integer columns of a step, read into numpy once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sampler_kernels.checks.refusing import outside
from sampler_kernels.refusal import Reason


def int_column(
    values: Sequence[int],
    field: str,
    low: int,
    high: int,
    *,
    reason: Reason = Reason.PARAMETER_OUT_OF_RANGE,
    per_request: bool = True,
) -> NDArray[np.int64]:
    """[n] int64 of n integers in [low, high).

    Args:
        values: The integers.
        field: Their name on the wire.
        low: Smallest legal value.
        high: One above the largest.
        reason: Why a value outside is refused.
        per_request: Whether entry i belongs to request i, so that a refusal names the request.

    Raises:
        StepRefused: ``reason``.
    """
    column: NDArray[Any] = np.asarray(values)
    if column.dtype.kind in "iu" and column.ndim == 1:
        bad: NDArray[np.bool_] = (column < low) | (column >= high)
    else:  # empty, beyond 64 bits, or no integers at all
        bad = np.array([not _is_integer(value, low, high) for value in values], np.bool_)
    if bad.any():
        i = int(bad.argmax())
        legal = f"an integer in [{low}, {high})"
        request, part = (i, "") if per_request else (None, f"[{i}]")
        raise outside(field, values[i], legal, part=part, reason=reason, request=request)
    return column.astype(np.int64, copy=False)


def uint64_column(
    values: Sequence[int | None] | NDArray[np.uint64], field: str
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """[B] uint64 of integers in [0, 2^64), and [B] bool: whether there is one (None reads as 0, False).

    Raises:
        StepRefused: PARAMETER_OUT_OF_RANGE, with the request.
    """
    column: NDArray[Any] = np.asarray(values)
    given = np.ones(len(column), np.bool_)
    if column.dtype == np.uint64 and column.ndim == 1:
        return column, given
    if column.dtype.kind in "iu" and column.ndim == 1:
        bad: NDArray[np.bool_] = column < 0
    else:  # with None among them, or too mixed in size for numpy to keep as integers
        given = np.array([value is not None for value in values], np.bool_)
        filled = [0 if value is None else value for value in values]
        bad = np.array([not _is_integer(value, 0, 2**64) for value in filled], np.bool_)
        column = np.array([0 if wrong else value for value, wrong in zip(filled, bad, strict=True)], np.uint64)
    if bad.any():
        request = int(bad.argmax())
        raise outside(field, values[request], "an integer in [0, 2^64)", request=request)
    return column.astype(np.uint64, copy=False), given


def _is_integer(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and low <= value < high
