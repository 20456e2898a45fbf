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


class Slide:
    """A varint field written before a large array and again behind it, so that the array begins where it should.

    A varint may end in groups of zeros, and of a field that occurs twice the last counts. So the field takes more bytes
    in front and fewer behind, or the other way round: the array moves by up to 7 bytes, and no length anywhere in the
    message changes. The server reads an aligned array where it lies in the message, and copies any other.

    Args:
        number: Of the field, below 16.
        value: Of the field, below 128.
        distance: Bytes between the field and the array.
    """

    __slots__ = ("_field", "distance")

    SIZE: Final = 11
    """Bytes that both fields take together: two tags, and nine bytes for the values."""

    def __init__(self, number: int, value: int, distance: int) -> None:
        self._field = number << 3, value
        self.distance = distance

    def at(self, offset: int) -> tuple[bytes, bytes]:
        """The two fields, if the first begins at an offset of the message; the array then lies at a multiple of 8."""
        before = -(offset + 1 + self.distance) % 8 or 8
        return self._of(before), self._of(9 - before)

    def _of(self, size: int) -> bytes:
        tag, value = self._field
        return bytes((tag, value)) if size == 1 else bytes((tag, value | 128, *(128,) * (size - 2), 0))


class Chunks:
    """A growing message: buffers to be joined, and their size in bytes."""

    __slots__ = ("buffers", "size")

    def __init__(self, start: bytes = b"") -> None:
        self.buffers: list[bytes | memoryview | Slide] = [start]
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

    def add_slide(self, slide: Slide, prefix: bytes, array: NDArray[Any]) -> None:
        """Appends what stands before a contiguous array, ``slide.distance`` bytes, and the array, moved into place."""
        self.buffers += (slide, prefix, array.data, slide)
        self.size += Slide.SIZE + len(prefix) + array.nbytes

    def join(self) -> bytes:
        """The whole message; the one copy of every buffer."""
        joined: list[bytes | memoryview] = []
        at, behind = 0, b""
        for buffer in self.buffers:
            if isinstance(buffer, Slide):
                # The second of a pair is what the first has left.
                piece, behind = (behind, b"") if behind else buffer.at(at)
                joined.append(piece)
                at += len(piece)
            else:
                joined.append(buffer)
                at += len(buffer) if isinstance(buffer, bytes) else buffer.nbytes
        return b"".join(joined)
