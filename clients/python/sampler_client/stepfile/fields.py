"""Reading typed values out of JSON objects, with the path of what is wrong in every refusal."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sampler_client.errors import InvalidStep, invalid
from sampler_client.stepfile.strict_json import malformed, shown

INT64: Final = range(-(2**63), 2**63)
UINT64: Final = range(2**64)
COUNT32: Final = range(2**31)

_DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]{0,39}")
_NON_FINITE: Final = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan}


def as_object(value: object, path: str, known: Collection[str]) -> Mapping[str, Any]:
    """An object whose keys are all known.

    Raises:
        InvalidStep: No object, or a key besides ``known``.
    """
    if not isinstance(value, dict):
        raise malformed(f"{path} is {shown(value)}, expected an object", path)
    for key in value:
        if key not in known:
            raise invalid("UNKNOWN_KEY", path, f"{path} has no key {shown(key)}; it has {', '.join(sorted(known))}")
    return value


def required(value: Mapping[str, Any], key: str, path: str) -> object:
    """An entry that must be there.

    Raises:
        InvalidStep: It is not, or is null.
    """
    if value.get(key) is None:
        raise invalid("FIELD_REQUIRED", f"{path}.{key}", f"{path} lacks {key}")
    return value[key]


def as_list(value: object, path: str) -> list[Any]:
    """A list.

    Raises:
        InvalidStep: Anything else.
    """
    if not isinstance(value, list):
        raise malformed(f"{path} is {shown(value)}, expected a list", path)
    return value


def as_integer(value: object, path: str, legal: range = INT64, reason: str = "PARAMETER_OUT_OF_RANGE") -> int:
    """An integer: a JSON number without fraction or exponent, or a decimal string.

    Args:
        value: As read.
        path: For refusals.
        legal: What the contract can carry; narrower ranges are the service's to check.
        reason: Of the refusal of an integer outside ``legal``.

    Raises:
        InvalidStep: No integer, or one outside ``legal``.
    """
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise malformed(f"{path} is {shown(value)}, expected an integer", path)
    if value not in legal:
        raise invalid(reason, path, f"{path} is {value}, expected {legal.start}..{legal.stop - 1}")
    return value


def as_number(value: object, path: str) -> float:
    """A JSON number; beyond the range of a double it is infinite.

    Raises:
        InvalidStep: Anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise malformed(f"{path} is {shown(value)}, expected a number", path)
    return float(value)


def as_flag(value: object, path: str) -> bool:
    """True or false.

    Raises:
        InvalidStep: Anything else.
    """
    if not isinstance(value, bool):
        raise malformed(f"{path} is {shown(value)}, expected true or false", path)
    return value


def as_choice(value: object, path: str, choices: Collection[str], reason: str) -> str:
    """One of some names.

    Raises:
        InvalidStep: Anything else.
    """
    if not isinstance(value, str):
        raise malformed(f"{path} is {shown(value)}, expected a string", path)
    if value not in choices:
        raise invalid(reason, path, f"{path} is {shown(value)}, expected one of {', '.join(choices)}")
    return value


def as_ids(value: object, path: str) -> list[int]:
    """A list of token ids; whether the vocabulary has them is the service's to check.

    Raises:
        InvalidStep: Something else, or an id beyond 64 bits.
    """
    entries = as_list(value, path)
    return [as_integer(entry, f"{path}[{i}]", INT64, "TOKEN_ID_OUT_OF_RANGE") for i, entry in enumerate(entries)]


def as_numbers(value: object, path: str) -> list[float]:
    """A list of numbers.

    Raises:
        InvalidStep: Anything else.
    """
    return [as_number(entry, f"{path}[{i}]") for i, entry in enumerate(as_list(value, path))]


def as_reals(value: object, path: str) -> NDArray[np.float64]:
    """[n] float64 from a list of numbers and the strings ``"inf"``, ``"-inf"``, ``"nan"``.

    Raises:
        InvalidStep: Anything else.
    """
    entries = as_list(value, path)
    if not set(map(type, entries)) <= {int, float}:
        entries = [_real(entry, path, i) for i, entry in enumerate(entries)]
    return np.asarray(entries, dtype=np.float64)


def _real(value: object, path: str, index: int) -> float:
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        place = f"{path}[{index}]"
        raise malformed(f'{place} is {shown(value)}, expected a number or one of "inf", "-inf", "nan"', place)
    return float(value)


def mismatch(path: str, found: int, expected: int, of: str) -> InvalidStep:
    """The refusal of a list of the wrong length."""
    return invalid("SHAPE_MISMATCH", path, f"{path} has {found} {of}, expected {expected}")
