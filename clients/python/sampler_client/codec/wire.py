"""Putting a message together by hand, so that a tensor's bytes are copied once: from the array into the message.

A protobuf ``bytes`` field takes ``bytes`` only. A tensor set that way is copied into a ``bytes``, into the message and
into the serialized message. Fields of the wire format are plain records (tag, length, content) in any order, so the
small parts are serialized by protobuf and the large ones are written around them.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

_LENGTH_DELIMITED = 2


def varint(number: int) -> bytes:
    """Base-128 varint of a number >= 0."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class Chunks:
    """A growing message: buffers to be joined, and their size in bytes."""

    __slots__ = ("buffers", "size")

    def __init__(self, *buffers: bytes) -> None:
        self.buffers: list[bytes | memoryview] = list(buffers)
        self.size = sum(map(len, buffers))

    def add(self, buffer: bytes) -> None:
        """Appends fields that are already serialized, or the content of a field."""
        self.buffers.append(buffer)
        self.size += len(buffer)

    def add_array(self, array: NDArray[Any]) -> None:
        """Appends the elements of a contiguous array, which must stay as they are until :meth:`join`."""
        self.buffers.append(array.data)
        self.size += array.nbytes

    def add_field(self, number: int, content: bytes | Chunks) -> None:
        """Appends a field that holds bytes or a message."""
        size = content.size if isinstance(content, Chunks) else len(content)
        self.add(varint(number << 3 | _LENGTH_DELIMITED) + varint(size))
        if isinstance(content, Chunks):
            self.buffers += content.buffers
            self.size += size
        else:
            self.add(content)

    def join(self) -> bytes:
        """The whole message; the one copy of every buffer."""
        return b"".join(self.buffers)
