"""Large messages: the payloads of tensors are taken out where they lie, and only the rest is parsed.

Protobuf copies a ``bytes`` field twice on its way into Python, out of the message and out of the parsed one; for a
step of 18 MB that is 2.5 ms, more than the rest of the service's work. So a message is walked along its fields first,
and each tensor's ``inline_bytes`` is replaced by a number, under which the payload is found as a view of the message.
All that protobuf does with repeated, merged and unknown fields it still does itself, on the rest.

The walk counts fields too. An empty message inside another takes two bytes on the wire and hundreds once parsed, so
that a message of the size that the server takes could ask for a hundred times as much memory; a step is a short list
of long fields, and one with a great many is given up before it is parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from google.protobuf.message import Message

from sampler_client.v1 import sampler_pb2 as pb
from sampler_service.errors import Reason, refuse

SMALL: Final = 1 << 16
"""Bytes up to which a message is parsed as it is: walking it would cost more than copying, and it stays small."""

MAX_FIELDS: Final = 1 << 16
"""Fields of the largest legal step, with room: 4,096 parameter sets of a few fields, each column one field."""

_PAYLOAD: Final = pb.Tensor.INLINE_BYTES_FIELD_NUMBER << 3 | 2
_NUMBER_BYTES: Final = 4

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class Payloads:
    """The payloads that were taken out of a message.

    Args:
        data: The message as received.
    """

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._places: list[tuple[int, int]] = []

    def take(self, at: int, size: int) -> bytes:
        """Note a payload; what stands in the message instead of it."""
        self._places.append((at, size))
        return (len(self._places) - 1).to_bytes(_NUMBER_BYTES, "little")

    def of(self, stand_in: bytes) -> memoryview:
        """The payload that ``stand_in`` stands for: a view of the received bytes, aligned to nothing."""
        at, size = self._places[int.from_bytes(stand_in, "little")]
        return self._data[at : at + size]


def lift(kind: type[Message], data: bytes) -> tuple[bytes, Payloads] | None:
    """A message without the payloads of its tensors, and the payloads.

    Args:
        kind: What the bytes are to be parsed as.
        data: As received.

    Returns:
        None for bytes that are to be parsed as they are: small ones, and those that are no message of any kind,
        which the parser refuses.

    Raises:
        Refusal: LIMIT_EXCEEDED, for more fields than any legal step has.
    """
    if len(data) <= SMALL:
        return None
    walk = _Walk(data)
    try:
        rest = walk.message(0, len(data), _tree(kind.DESCRIPTOR))
    except _Nonsense:
        return None
    return rest, walk.payloads


Tree: TypeAlias = "Mapping[int, Tree | None]"
"""Tag of each field that holds a message -> the same of that message; None for the payload of a tensor."""


@cache
def _tree(descriptor: Any) -> Tree:  # noqa: ANN401  (a class of its own in each protobuf backend)
    inside: dict[int, Tree | None] = {
        field.number << 3 | _LENGTH: _tree(field.message_type)
        for field in descriptor.fields
        if field.message_type is not None
    }
    if descriptor.full_name == pb.Tensor.DESCRIPTOR.full_name:
        inside[_PAYLOAD] = None
    return inside


class _Nonsense(Exception):
    """Bytes that the parser will refuse, or that are encoded as no encoder would."""


class _Walk:
    """One pass over a message."""

    def __init__(self, data: bytes) -> None:
        self.payloads = Payloads(data)
        self._data = data
        self._left = MAX_FIELDS

    def message(self, at: int, end: int, tree: Tree) -> bytes:
        """The message between two offsets, without payloads."""
        data, kept = self._data, at
        chunks: list[bytes] = []
        while at < end:
            self._left -= 1
            if self._left < 0:
                what = f"a message of {len(data)} bytes holds more than {MAX_FIELDS} fields; lists must be packed"
                raise refuse(Reason.LIMIT_EXCEEDED, what)
            tag, at = self._varint(at, end)
            kind = tag & 7
            if kind == _LENGTH:
                size, content = self._varint(at, end)
                if content + size > end:
                    raise _Nonsense
                if tag in tree:
                    inside = tree[tag]
                    if inside is None:
                        new = self.payloads.take(content, size)
                    else:
                        new = self.message(content, content + size, inside)
                    chunks += (data[kept:at], _encoded(len(new)), new)
                    kept = content + size
                at = content + size
            elif kind == _VARINT:
                _, at = self._varint(at, end)
            elif kind in (_FIXED64, _FIXED32):
                at += 8 if kind == _FIXED64 else 4
            else:
                raise _Nonsense
        if at > end:
            raise _Nonsense
        chunks.append(data[kept:end])
        return b"".join(chunks)

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """A number below 2^64 and the offset behind it."""
        number = shift = 0
        while at < end and shift < 70:
            byte = self._data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number, at
            shift += 7
        raise _Nonsense


def _encoded(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
