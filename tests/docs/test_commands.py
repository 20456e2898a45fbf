"""Every command on every page is run, or looked at where running it makes no sense; a block says which."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.docs import looked_at, tools
from tests.docs.blocks import PAGES, ROOT, Command, commands, examples, fenced, without_blocks

COMMANDS = commands()
PROGRAMS = (*tools.PROGRAMS, *looked_at.DEVELOPERS_TOOLS, *looked_at.OTHERS, "make", "pip", "python", "bash")
_INLINE = re.compile(rf"`((?:{'|'.join((*PROGRAMS, '.venv/bin/python'))}) [^`]+)`")


def name(command: Command) -> str:
    return f"{command.place}: {command.text.splitlines()[0]}"


RUN = [command for command in COMMANDS if command.exit_status is not None and not command.serves]


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {**tools.environment(tmp_path_factory.mktemp("bin")), "SAMPLER_BACKEND": "cpu"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own: the path of a unix socket holds at most 107 bytes."""
    with TemporaryDirectory(prefix="docs-") as place:
        yield Path(place)


@pytest.mark.parametrize("command", RUN, ids=name)
def test_command(command: Command, folder: Path, env: dict[str, str]) -> None:
    with tools.service(folder, env) if "service" in command.beside else nullcontext():
        run(command, folder, env)


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.serves], ids=name)
def test_server(command: Command, folder: Path, env: dict[str, str]) -> None:
    # Where a page's server does not say where to listen, it listens in a runtime directory of the test's own.
    with tools.started(command.text, folder, {**env, "XDG_RUNTIME_DIR": str(folder)}) as address:
        done = tools.run(f"sampler-service health --address {address}", folder, env)
        assert (done.stdout, done.returncode) == ("SERVING\n", 0)


def run(command: Command, folder: Path, env: dict[str, str]) -> None:
    if "protos" in command.beside:
        (folder / "protos").symlink_to(ROOT / "protos")
    steps = {example.name: example.step for example in examples()}
    for file in command.files:
        (folder / f"{file}.json").write_text(json.dumps(steps[file], indent=1), encoding="utf-8")
    done = tools.run(f"set -e\n{command.text}", folder, {**env, "XDG_RUNTIME_DIR": str(folder)})
    assert done.returncode == command.exit_status, done.stderr
    if command.files and command.exit_status in {0, 1}:
        assert len(done.stdout.splitlines()) == len(command.files), "one line for each step"


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.exit_status is None], ids=name)
def test_command_that_is_not_run(command: Command, env: dict[str, str]) -> None:
    lines = command.text.replace("\\\n", " ").splitlines()
    assert [problem for line in lines if (problem := looked_at.fault(line, env))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_within_the_text(page: Path, env: dict[str, str]) -> None:
    found = _INLINE.findall(without_blocks(page.read_text(encoding="utf-8")))
    assert [problem for line in found if (problem := looked_at.fault(line, env))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_hides_in_a_block_that_is_not_marked(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    indented = re.findall(r"^ {4,}(.+)$", without_blocks(text), re.MULTILINE)
    other = [line for mark, block in fenced(page) if mark[:1] != ["sh"] for line in block.splitlines()]
    begins = re.compile(rf"\s*(?:\$ |# )?(?:{'|'.join(PROGRAMS)})(?: [a-z.-]|$)")
    assert [line for line in (*indented, *other) if begins.match(line)] == []


@pytest.mark.parametrize(
    "line",
    [
        "make nonsense",
        "make lint && make nonsense",
        "pip install ./clients/nowhere",
        "pip install .[nonsense]",
        "sampler-service nonsense",
        "sampler-service serve --nonsense",
        "sampler-client verify --backend cpu FILE",
        "python tests/nowhere.py",
        "python -m tests.nowhere",
        "buf breaking --against protos/nowhere.binpb",
        "nonsense",
    ],
)
def test_a_wrong_command_is_noticed(line: str, env: dict[str, str]) -> None:
    assert looked_at.fault(line, env) is not None
