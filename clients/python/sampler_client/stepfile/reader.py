"""Splitting a step file into its steps: one object that may span lines, or one object per line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from sampler_client.errors import InvalidStep, invalid
from sampler_client.stepfile.strict_json import MAX_TEXT, MalformedText, loads, malformed


def read_values(stream: BinaryIO, limit: int = MAX_TEXT) -> Iterator[object]:
    """Reads the JSON value of each step, or yields an ``InvalidStep`` for a text that is none.

    A file is one object if its first line is only the beginning of a JSON value and the whole is one. Otherwise every
    line is a step of its own, read when it arrives, and a malformed one does not touch the others. A file whose first
    line is a lone bracket, as printers of indented JSON write it, and which has no later line that begins with ``{``,
    is one malformed step, not one for each line.

    Args:
        stream: The file, opened in binary mode.
        limit: Longest text of one step in bytes.
    """
    lines = _lines(stream, limit)
    for line in lines:
        value, incomplete = _value(line, limit)
        if not incomplete:
            yield value
            break
        rest = list(lines) if len(line) <= limit else []
        whole, _ = _value(line + b"".join(rest), limit)
        alone = line.strip() in (b"{", b"[") and not any(later.startswith(b"{") for later in rest)
        if alone or not isinstance(whole, InvalidStep):
            yield whole
        else:
            yield from (_value(each, limit)[0] for each in (line, *rest))
    for line in lines:
        yield _value(line, limit)[0]


def _lines(stream: BinaryIO, limit: int) -> Iterator[bytes]:
    """Lines that are not blank. One longer than ``limit`` is cut to ``limit + 1`` bytes, and the rest of it skipped."""
    while line := stream.readline(limit + 1):
        last = line
        while len(last) > limit and not last.endswith(b"\n"):
            last = stream.readline(limit + 1)
        if line.strip():
            yield line


def _value(text: bytes, limit: int) -> tuple[object, bool]:
    """The JSON value of a text, or its refusal and whether more text might have made it whole."""
    if len(text) > limit:
        return invalid("LIMIT_EXCEEDED", "", f"the step is longer than {limit} bytes"), False
    try:
        return loads(text), False
    except MalformedText as error:
        return malformed(str(error)), error.incomplete
