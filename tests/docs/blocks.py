"""The blocks of the documents that a test can run. ``docs/stepfile.md``, "For tests", describes their marks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = tuple(sorted((ROOT / "docs").glob("*.md")))

_FENCED = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """A step file and what it must answer; ``place`` is the document that shows it."""

    name: str
    place: str
    step: Any
    result: Any


@dataclass(frozen=True)
class Command:
    """A shell command, the exit status it must have, and the examples whose steps it finds as ``NAME.json``."""

    place: str
    text: str
    exit_status: int
    files: tuple[str, ...]


def examples() -> list[Example]:
    """Every marked step with its result.

    Raises:
        ValueError: A step without result, a result without step, or a name used twice.
    """
    steps: dict[str, tuple[str, str]] = {}
    results: dict[str, str] = {}
    for place, mark, text in _blocks():
        match mark:
            case ["json", "step", name] if name not in steps:
                steps[name] = place, text
            case ["json", "result", name] if name not in results:
                results[name] = text
            case ["json", "step" | "result", *_]:
                raise ValueError(f"{place}: block {' '.join(mark)!r} is not unique, or has no name")
    if steps.keys() != results.keys():
        raise ValueError(f"steps and results do not pair: {sorted(steps.keys() ^ results.keys())}")
    return [Example(name, place, json.loads(text), json.loads(results[name])) for name, (place, text) in steps.items()]


def commands() -> list[Command]:
    """Every marked shell command."""
    found = []
    for place, mark, text in _blocks():
        if mark[:1] == ["sh"] and len(mark) > 1:
            options = dict(word.split("=", 1) for word in mark[1:])
            files = tuple(name for name in options.pop("files", "").split(",") if name)
            found.append(Command(place, text.strip(), int(options.pop("exit")), files))
            if options:
                raise ValueError(f"{place}: unknown marks {sorted(options)}")
    return found


def without_blocks(text: str) -> str:
    """A document's text less its fenced blocks."""
    return _FENCED.sub("", text)


def _blocks() -> Iterator[tuple[str, list[str], str]]:
    for document in DOCUMENTS:
        for match in _FENCED.finditer(document.read_text(encoding="utf-8")):
            yield document.name, match[1].split(), match[2]
