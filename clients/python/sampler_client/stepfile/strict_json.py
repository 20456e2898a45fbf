"""JSON as its standard has it: no key twice, no NaN literals, no depth that exhausts the stack."""

from __future__ import annotations

import json
from collections import Counter
from typing import Final, NoReturn

from sampler_client.errors import InvalidStep, invalid

MAX_TEXT: Final = 256 << 20
"""Longest text of one step in bytes. It becomes several times as much in memory, and no server takes larger steps."""

_MAX_INTEGER_DIGITS: Final = 40
"""Longer integers than any 64-bit one are only numbers; Python refuses to read very long ones exactly."""


class MalformedText(Exception):
    """The text is no JSON.

    Attributes:
        incomplete: Whether the text ended in the middle of a value, so that more of it might make it whole.
    """

    def __init__(self, message: str, *, incomplete: bool = False) -> None:
        super().__init__(message)
        self.incomplete = incomplete


def malformed(message: str, field: str = "") -> InvalidStep:
    """The refusal of a step that is not written as a step file is."""
    return invalid("MALFORMED_STEP", field, message)


def loads(text: bytes) -> object:
    """Reads one JSON value.

    Numbers with a fraction or exponent are floats, others ints (floats from 41 digits on, which no field takes as an
    integer).

    Raises:
        MalformedText: It is no JSON, or holds a key twice, or is nested too deeply.
    """
    try:
        return json.loads(
            text.decode(),
            object_pairs_hook=_object,
            parse_int=lambda digits: int(digits) if len(digits) <= _MAX_INTEGER_DIGITS else float(digits),
            parse_constant=_no_constant,
        )
    except json.JSONDecodeError as error:
        incomplete = error.pos >= len(error.doc.rstrip())
        raise MalformedText(f"not JSON: {error.msg} at character {error.pos + 1}", incomplete=incomplete) from None
    except UnicodeDecodeError as error:
        raise MalformedText(f"not UTF-8: byte {error.start + 1}") from None
    except RecursionError:
        raise MalformedText("not a step: nested too deeply") from None


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise MalformedText(f"the key {shown(twice)} stands twice in one object")
    return found


def _no_constant(name: str) -> NoReturn:
    raise MalformedText(f'{name} is no JSON number; a logit may be the string "nan", "inf" or "-inf"')


def shown(value: object) -> str:
    """A value as JSON for a message, cut to a readable length."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
