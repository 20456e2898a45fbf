"""The README holds: its two commands, its example against a service started as it says, and the demo's output."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.docs import tools
from tests.docs.blocks import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)[^\n]*\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
LEFT_OUT = "[...]"

_NUMBER = re.compile(r"\d[\d,]*(\.\d+)?(e-\d+)?")


def after(heading: str) -> list[tuple[str, str]]:
    """The blocks of a section, each with its language."""
    section = README.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return [(language, text) for language, text in BLOCKS if text in section]


def form(line: str) -> str:
    """A line of the demo's output without what differs between runs and settings."""
    return " ".join(_NUMBER.sub("0", line).split())


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Not pytest's own: the path of a unix socket holds at most 107 bytes."""
    with TemporaryDirectory(prefix="readme-") as name:
        yield Path(name)


def test_the_first_block_is_the_two_commands() -> None:
    assert BLOCKS[0] == ("sh", "make demo\nmake test\n")
    assert README.index("\nmake demo\nmake test\n") < README.index("\n## ")


def test_the_client_example_runs_as_written(folder: Path) -> None:
    (_, serve), (_, example), (_, shown) = after("Use it")
    assert len([line for line in example.splitlines() if line]) <= 10
    env = {**tools.environment(folder), "SAMPLER_BACKEND": "cpu"}
    with tools.started(serve, folder, env):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", example],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=tools.STARTED_WITHIN_S,
            check=False,
        )
    assert (done.stdout, done.returncode) == (shown, 0), done.stderr


def test_the_demo_prints_what_is_shown(folder: Path) -> None:
    ((_, shown),) = after("The demo")
    small = ("--prompts", "2", "--tokens", "4", "--samples", "150")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "demo.py"), *small],
        env=tools.environment(folder),
        capture_output=True,
        text=True,
        timeout=2 * tools.STARTED_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = {form(line) for line in done.stdout.splitlines()}
    frame = [line for line in shown.splitlines() if is_frame(line)]
    assert [line for line in frame if form(line) not in printed] == []
    assert len(frame) >= 18, "headings, two runs' counts, six checks and the verdict"
    assert shown.count(LEFT_OUT) == 3
    assert re.search(r"^\S+ \(-\d\.\d{3}\) \| top: \[('.+':-\d+\.\d{3}(, )?){3}\]$", shown, re.MULTILINE)


def is_frame(line: str) -> bool:
    """Whether a line of the demo's output says the same for every text, up to its numbers."""
    if line.startswith(("Speculative", "Temperature", "Tokens at", "Checks", "ok ", "all ", "tokens per step")):
        return True
    return line.startswith(("step latency", "models, ms", "text ", "models  ", "perplexity"))
