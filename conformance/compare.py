"""Compares results of step files with the expected ones; needs nothing but Python.

    python conformance/compare.py conformance/expected RESULTS

RESULTS is a folder with one file for each of the expected, or one such file (then so is the first argument). Prints a
line for every difference. Exit status: 0 no difference, 1 some, 2 unreadable or usage.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOLERANCE = 1e-4
"""Of every number that is not an integer. No expected result hangs on a decision that rounding could turn, so
everything else has to be equal."""


def differences(expected: Any, found: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401  (any JSON value)
    """What of the expected result is missing or other in the one found; more keys may be there."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key, value in expected.items():
            if key in found:
                yield from differences(value, found[key], f"{path}.{key}" if path else key)
            else:
                yield f"{path}.{key}: missing"
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for i, (value, other) in enumerate(zip(expected, found)):  # noqa: B905  (equally long)
            yield from differences(value, other, f"{path}[{i}]")
    elif not _alike(expected, found):
        yield f"{path}: expected {expected!r}, found {found!r}"


def _alike(expected: Any, found: Any) -> bool:  # noqa: ANN401
    if isinstance(expected, float) and isinstance(found, (int, float)) and not isinstance(found, bool):
        return abs(expected - found) <= TOLERANCE
    return type(expected) is type(found) and bool(expected == found)


def compare_files(expected: Path, found: Path) -> Iterator[str]:
    """Differences of two files, line by line."""
    lines = [[json.loads(line) for line in path.read_text().splitlines()] for path in (expected, found)]
    if len(lines[0]) != len(lines[1]):
        yield f"{expected.stem}: expected {len(lines[0])} lines, found {len(lines[1])}"
        return
    for number, (right, other) in enumerate(zip(*lines), 1):  # noqa: B905  (equally long)
        for difference in differences(right, other):
            yield f"{expected.stem}, line {number}: {difference}"


def main(arguments: list[str]) -> int:
    """See the module."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    expected, found = map(Path, arguments)
    pairs = [(expected, found)]
    if expected.is_dir():
        pairs = [(path, found / path.name) for path in sorted(expected.glob("*.jsonl"))]
    count = 0
    try:
        for pair in pairs:
            for difference in compare_files(*pair):
                print(difference)
                count += 1
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(pairs)} files, {count} differences", file=sys.stderr)
    return 1 if count or not pairs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
