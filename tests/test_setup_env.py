"""Which torch the set-up chooses, on machines that this one is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import setup_env
from tools.setup_env import Build, SetupError, Stamp, Torch

CUDA = Build(cuda=True)
CPU = Build(cuda=False)
CPU_ELSEWHERE = Build(cuda=False, options=("--index-url", setup_env.CPU_INDEX))


@pytest.mark.parametrize(
    ("version", "cuda", "gpu", "suits"),
    [
        ("2.13.0+cpu", None, False, True),
        ("2.13.0+cpu", None, True, False),
        ("2.13.0", "13.0", True, True),
        ("2.13.0", "13.0", False, True),
        ("2.11.0a0+abc", "12.8", True, True),
        ("2.10.1", "12.8", True, False),
        ("10.0", None, False, True),
        ("unknown", None, False, False),
    ],
)
def test_a_found_torch_is_used_where_it_fits(version: str, cuda: str | None, gpu: bool, suits: bool) -> None:
    assert Torch(version, cuda, []).suits(gpu=gpu) is suits


@pytest.mark.parametrize(
    ("default", "elsewhere", "gpu", "chosen"),
    [
        (CPU, None, False, CPU),
        (CUDA, None, True, CUDA),
        (CPU, None, True, CPU),  # nothing better is offered; the set-up says so
        (CUDA, CPU_ELSEWHERE, False, CPU_ELSEWHERE),
        (CUDA, None, False, CUDA),
        (None, CPU_ELSEWHERE, False, CPU_ELSEWHERE),
    ],
)
def test_choice_of_build(
    monkeypatch: pytest.MonkeyPatch, default: Build | None, elsewhere: Build | None, gpu: bool, chosen: Build
) -> None:
    monkeypatch.setattr(setup_env, "offered_build", lambda *options: elsewhere if options else default)
    assert setup_env.choose_build(gpu=gpu) == chosen


def test_no_build_at_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_env, "offered_build", lambda *_: None)
    with pytest.raises(SetupError, match=setup_env.TORCH):
        setup_env.choose_build(gpu=False)


def test_another_index_is_asked_only_when_that_can_help(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def offered(*options: str) -> Build:
        asked.append(options)
        return CPU

    monkeypatch.setattr(setup_env, "offered_build", offered)
    setup_env.choose_build(gpu=False)
    assert asked == [()]


@pytest.mark.parametrize("content", [None, "", "null", "[]", '{"python": "3"}', '{"other": 1}'])
def test_an_unfinished_environment_is_not_taken_for_a_finished_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    stamp, python = tmp_path / "stamp.json", tmp_path / "python"
    python.touch()
    monkeypatch.setattr(setup_env, "STAMP", stamp)
    monkeypatch.setattr(setup_env, "VENV_PYTHON", python)
    if content is not None:
        stamp.write_text(content)
    assert Stamp.found() is None


def test_a_stamp_without_its_interpreter_counts_for_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stamp, python = tmp_path / "stamp.json", tmp_path / "python"
    stamp.write_text(json.dumps({"python": "3", "root": "/", "inputs": "0"}))
    monkeypatch.setattr(setup_env, "STAMP", stamp)
    monkeypatch.setattr(setup_env, "VENV_PYTHON", python)
    assert Stamp.found() is None
    python.touch()
    assert Stamp.found() == Stamp("3", "/", "0")
