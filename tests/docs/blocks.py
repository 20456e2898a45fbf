"""The blocks of the documents that a test can run. ``CONTRIBUTING.md``, "Documents", describes their marks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = tuple(sorted((ROOT / "docs").glob("*.md")))
PAGES = (
    *DOCUMENTS,
    *sorted(ROOT.glob("*.md")),
    ROOT / "clients" / "loadtest" / "README.md",
    ROOT / "clients" / "python" / "README.md",
    ROOT / "protos" / "README.md",
)
"""Every page of the repository: what is said on one of them is held to the code."""

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
    """A block of shell commands.

    Attributes:
        place: The page that shows it.
        text: One command or several, one a line.
        exit_status: What it must end with; None for a block that is only looked at.
        serves: Whether it is a server, to be ended by SIGTERM once it listens.
        beside: What it finds: ``service``, one at ``unix:sampler.sock``; ``protos``, the repository's folder.
        files: The examples whose steps it finds as ``NAME.json``.
    """

    place: str
    text: str
    exit_status: int | None = None
    serves: bool = False
    beside: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


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
    """Every block of shell commands.

    Raises:
        ValueError: A block that does not say how it is to be tested.
    """
    found = []
    for page in PAGES:
        for mark, text in fenced(page):
            if mark[:1] == ["sh"]:
                found.append(_command(str(page.relative_to(ROOT)), mark[1:], text.strip()))
    return found


def _command(place: str, marks: list[str], text: str) -> Command:
    match marks:
        case ["looked-at"]:
            return Command(place, text)
        case ["serves"]:
            return Command(place, text, exit_status=0, serves=True)
        case [status, *more] if status.startswith("exit="):
            beside = tuple(word for word in more if word in ("service", "protos"))
            options = dict(word.split("=", 1) for word in more if word not in beside)
            files = tuple(name for name in options.pop("files", "").split(",") if name)
            if not options:
                return Command(place, text, int(status[5:]), beside=beside, files=files)
    raise ValueError(f"{place}: a block of commands is marked {' '.join(marks)!r}; CONTRIBUTING.md lists the marks")


def without_blocks(text: str) -> str:
    """A document's text less its fenced blocks."""
    return _FENCED.sub("", text)


def fenced(page: Path) -> Iterator[tuple[list[str], str]]:
    """The fenced blocks of a page: the words behind the fence, and the text."""
    for match in _FENCED.finditer(page.read_text(encoding="utf-8")):
        yield match[1].split(), match[2]


def _blocks() -> Iterator[tuple[str, list[str], str]]:
    for document in DOCUMENTS:
        for mark, text in fenced(document):
            yield document.name, mark, text
