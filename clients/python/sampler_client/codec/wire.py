"""Putting a message together by hand, so that a tensor's bytes are copied once: from the array into the message.

A protobuf ``bytes`` field takes ``bytes`` only. A tensor set that way is copied into a ``bytes``, into the message and
into the serialized message. Fields of the wire format are plain records (tag, length, content) in any order, so the
small parts are serialized by protobuf and the large ones are written around them.
"""

from __future__ import annotations

from typing import Any, Final

from numpy.typing import NDArray

_LENGTH_DELIMITED: Final = 2
_ONE_BYTE: Final = [bytes([number]) for number in range(128)]


def varint(number: int) -> bytes:
    """Base-128 varint of a number >= 0."""
    if number < 128:
        return _ONE_BYTE[number]
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


_TAGS: Final = [varint(number << 3 | _LENGTH_DELIMITED) for number in range(64)]


def field_prefix(number: int, size: int) -> bytes:
    """What stands before the content of a field that holds ``size`` bytes or a message of that size.

    Args:
        number: Of the field, below 64.
        size: Of the content in bytes.
    """
    return _TAGS[number] + varint(size)


class Chunks:
    """A growing message: buffers to be joined, and their size in bytes."""

    __slots__ = ("buffers", "size")

    def __init__(self, start: bytes = b"") -> None:
        self.buffers: list[bytes | memoryview] = [start]
        self.size = len(start)

    def add(self, buffer: bytes) -> None:
        """Appends fields that are already serialized, or a part of one."""
        self.buffers.append(buffer)
        self.size += len(buffer)

    def add_array(self, array: NDArray[Any]) -> None:
        """Appends the elements of a contiguous array, which must stay as they are until :meth:`join`."""
        self.buffers.append(array.data)
        self.size += array.nbytes

    def add_message(self, number: int, message: Chunks) -> None:
        """Appends a field that holds a message."""
        self.add(field_prefix(number, message.size))
        self.buffers += message.buffers
        self.size += message.size

    def join(self) -> bytes:
        """The whole message; the one copy of every buffer."""
        return b"".join(self.buffers)
