"""Filling repeated fields of numbers, so that what the wire type cannot hold is refused by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from sampler_client.errors import InvalidStep, invalid


def plain(values: Iterable[Any]) -> list[Any]:
    """Any column as a list of Python numbers, which protobuf takes fastest."""
    return values.tolist() if isinstance(values, np.ndarray) else values if isinstance(values, list) else list(values)


def extend(column: Any, values: Iterable[Any] | None, field: str) -> None:  # noqa: ANN401  (a repeated field)
    """Appends ``values`` to a repeated field; None appends nothing.

    Raises:
        InvalidStep: A value of another type or beyond the range of the field's wire type.
    """
    if values is None:
        return
    numbers = plain(values)
    try:
        column.extend(numbers)
    except (TypeError, ValueError):
        raise _culprit(column, numbers, field) from None


def unsendable(field: str, value: object) -> InvalidStep:
    """The refusal of a value that the contract has no way to say."""
    return invalid("PARAMETER_OUT_OF_RANGE", field, f"{field} = {str(value)[:40]} does not fit the type of the field")


def _culprit(column: Any, values: list[Any], field: str) -> InvalidStep:  # noqa: ANN401  (a repeated field)
    """Finds the first value that the column does not take."""

    def refused(value: object) -> bool:
        try:
            column.append(value)
        except (TypeError, ValueError):
            return True
        return False

    position = next(index for index, value in enumerate(values) if refused(value))
    return unsendable(f"{field}[{position}]", values[position])
