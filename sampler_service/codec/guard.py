"""A look at a message's bytes before they are parsed: how many fields are in it, in all its depth.

An empty message inside another takes two bytes on the wire and hundreds once parsed, so a message of the size that the
server takes could ask for a hundred times as much memory. A step is a short list of long fields, so counting them takes
some microseconds; a message with many short ones is given up early.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from google.protobuf.message import Message

from sampler_service.errors import Reason, refuse

SMALL: Final = 1 << 16
"""Bytes up to which a message is not looked at: whatever it holds stays small."""

MAX_FIELDS: Final = 1 << 16
"""Fields of the largest legal step, with room: 4,096 parameter sets of a few fields, each column one field."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5

Tree: TypeAlias = "Mapping[int, Tree]"
"""Number of each field that holds a message -> the same of that message."""


def check_count(kind: type[Message], data: bytes) -> None:
    """Refuse bytes with more fields than any legal step has.

    Args:
        kind: What the bytes are to be parsed as.
        data: As received. Bytes that are no message at all are left for the parser to refuse.

    Raises:
        Refusal: LIMIT_EXCEEDED.
    """
    if len(data) > SMALL and _left(data, 0, len(data), _tree(kind.DESCRIPTOR), MAX_FIELDS) < 0:
        what = f"a message of {len(data)} bytes holds more than {MAX_FIELDS} fields; numbers in a list must be packed"
        raise refuse(Reason.LIMIT_EXCEEDED, what)


@cache
def _tree(descriptor: Any) -> Tree:  # noqa: ANN401  (a class of its own in each protobuf backend)
    return {field.number: _tree(field.message_type) for field in descriptor.fields if field.message_type is not None}


def _left(data: bytes, at: int, end: int, tree: Tree, most: int) -> int:
    """What is left of ``most`` fields between two offsets; below 0 as soon as there are more."""
    while at < end and most >= 0:
        most -= 1
        tag, at = _varint(data, at, end)
        kind = tag & 7
        if kind == _LENGTH:
            size, at = _varint(data, at, end)
            inside = tree.get(tag >> 3)
            if inside is not None:
                most = _left(data, at, min(at + size, end), inside, most)
            at += size
        elif kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            return most
    return most


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number and the offset behind it; one that is cut short or too long ends where it does."""
    number = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return number, at
