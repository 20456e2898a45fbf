"""Commands that a test does not run, looked at part by part: the programs, targets, options and files that they name.

That is for what would be absurd to run from inside a test, or cannot be: ``make test`` would run itself, ``make setup``
and ``pip install`` fetch packages, ``make proto`` and the renewal of the baseline write into the repository, ``make
bench`` takes minutes, and some programs are not there (:data:`OTHERS`). The demo, the stubs, buf's checks and the
planted faults are run by tests of their own.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from functools import cache
from itertools import takewhile
from pathlib import Path

from tests.docs import tools
from tests.docs.blocks import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OTHERS = {
    "grpcurl": "a program of its own; what its example sends and gets is tested in test_protocol.py",
    "nvidia-cuda-mps-control": "comes with NVIDIA's driver",
    "protoc": "protobuf's compiler as other languages have it; the one for Python is run in test_protocol.py",
}
"""Programs that the tests do not have, and why."""

DEVELOPERS_TOOLS = ("buf", "mypy", "pytest", "ruff")
_ASSIGNMENT = re.compile(r"[A-Z_]+=.*")
_OPTION = re.compile(r"--[a-z][a-z-]*")


def fault(line: str, env: dict[str, str]) -> str | None:
    """What is wrong with a line of commands joined by ``&&``, or None."""
    for command in line.split(" && "):
        words = shlex.split(command)
        words = words[len(list(takewhile(_ASSIGNMENT.fullmatch, words))) :]
        if problem := _fault(words, env):
            return f"{command}: {problem}"
    return None


def _fault(words: list[str], env: dict[str, str]) -> str | None:
    match words:
        case ["make", *rest]:
            return _make(rest)
        case ["pip", "install", *rest]:
            return next((f"no package at {place}" for place in rest if not _installs(place)), None)
        case [program, *rest] if program in tools.PROGRAMS:
            return _ours(program, rest, env)
        case [("python" | ".venv/bin/python"), "-m", module, *_]:
            return None if (ROOT / module.replace(".", "/")).with_suffix(".py").is_file() else f"no module {module}"
        case [("python" | ".venv/bin/python" | "bash"), script, *_]:
            return None if (ROOT / script).is_file() else f"no file {script}"
        case [".", place]:
            # Made by `make setup`.
            return None if place == ".venv/bin/activate" else f"no file {place}"
        case [program, *rest] if program in DEVELOPERS_TOOLS:
            return _developers_tool(program, rest)
        case [program, *_] if program in OTHERS:
            return None
    return "a command that the tests do not know"


def _make(words: list[str]) -> str | None:
    done = make_dry(*words)
    return None if done.returncode == 0 else done.stderr


def make_dry(*words: str) -> subprocess.CompletedProcess[str]:
    """What make would run, without running it."""
    return subprocess.run(
        ["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def _installs(place: str) -> bool:
    folder, _, extra = place.partition("[")
    if folder.startswith("-"):
        return folder in ("-e", "--editable")
    project = ROOT / folder / "pyproject.toml"
    if not project.is_file():
        return False
    about = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    return not extra or extra.rstrip("]") in about["optional-dependencies"]


def _ours(program: str, rest: list[str], env: dict[str, str]) -> str | None:
    command = [program, *takewhile(lambda word: re.fullmatch(r"[a-z]+", word), rest)][:2]
    help_text = _help(tuple(command), env["PATH"], env["PYTHONPATH"])
    if help_text is None:
        return f"there is no {shlex.join(command)}"
    known = {*_OPTION.findall(help_text), "--help"}
    return next((f"no option {option}" for option in _OPTION.findall(shlex.join(rest)) if option not in known), None)


@cache
def _help(command: tuple[str, ...], path: str, python_path: str) -> str | None:
    env = {"PATH": path, "PYTHONPATH": python_path, "COLUMNS": "200"}
    done = tools.run(shlex.join([*command, "--help"]), Path("/"), env)
    return done.stdout if done.returncode == 0 else None


def _developers_tool(program: str, rest: list[str]) -> str | None:
    pinned = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    package = "buf-bin" if program == "buf" else program
    if not any(requirement.startswith(f"{package}==") for requirement in pinned["dev"]):
        return f"{package} is not among the developers' packages"
    files = [word for word in rest if "/" in word]
    return next((f"no file {file}" for file in files if not (ROOT / file).exists()), None)
