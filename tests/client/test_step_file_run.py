"""Whole files: how they are split, that every step prints its line, and how the command ends."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sampler_client import InvalidStep, ServerFault, Step, StepResult, Unavailable
from sampler_client.stepfile import ExitStatus, Transport, verify_files
from sampler_client.stepfile.reader import read_values
from tests.client.transports import accepting

ONE = '{"vocab_size": 2, "requests": [{"target_logits": [[0, 1]], "params": {"seed": 1}}]}'
TWO = '{"vocab_size": 2, "requests": [{"target_logits": [[0, 1]], "params": {"seed": 2}}]}'
WRONG = '{"vocab_size": 2, "requests": [{"target_logits": [[0]]}]}'
INDENTED = json.dumps(json.loads(ONE), indent=2)


def values(text: str | bytes, limit: int = 10_000) -> list[object]:
    return list(read_values(io.BytesIO(text.encode() if isinstance(text, str) else text), limit))


def kinds(text: str | bytes, limit: int = 10_000) -> list[str]:
    """The seed of each step that was read, or the reason of its refusal."""

    def kind(value: Any) -> str:  # noqa: ANN401
        return value.reason if isinstance(value, InvalidStep) else str(value["requests"][0]["params"]["seed"])

    return [kind(value) for value in values(text, limit)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("\n \n", []),
        (ONE, ["1"]),
        (f"{ONE}\n{TWO}\n", ["1", "2"]),
        (f"\n{ONE}\r\n\n  {TWO}", ["1", "2"]),
        (INDENTED, ["1"]),
        (f"\n{INDENTED}\n\n", ["1"]),
        (ONE.replace(", ", ",\n"), ["1"]),
        (f"nonsense\n{ONE}", ["MALFORMED_STEP", "1"]),
        (f"{ONE}\nnonsense\n{TWO}", ["1", "MALFORMED_STEP", "2"]),
        (f"{ONE[:40]}\n{TWO}", ["MALFORMED_STEP", "2"]),
        (f"{ONE}\n{TWO[:40]}", ["1", "MALFORMED_STEP"]),
        (f"{{\n{ONE}\n{TWO}", ["MALFORMED_STEP", "1", "2"]),
        (f"{ONE[:40]}\n{TWO[:40]}", ["MALFORMED_STEP", "MALFORMED_STEP"]),
        (INDENTED[:-1], ["MALFORMED_STEP"]),
        (INDENTED.replace(":", "", 1), ["MALFORMED_STEP"]),
        (f"{ONE} {TWO}", ["MALFORMED_STEP"]),
        (b"\xff\n" + ONE.encode(), ["MALFORMED_STEP", "1"]),
    ],
)
def test_splitting(text: str | bytes, found: list[str]) -> None:
    assert kinds(text) == found


def test_step_that_is_too_long_is_skipped_without_being_held() -> None:
    read: list[int] = []

    class Counting(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            line = super().readline(size)
            read.append(len(line))
            return line

    bomb = ONE[:-1] + " " * 50_000 + "}"
    stream = Counting(f"{TWO}\n{bomb}\n{ONE}\n".encode())
    reasons = [value.reason if isinstance(value, InvalidStep) else "read" for value in read_values(stream, 1000)]
    assert reasons == ["read", "LIMIT_EXCEEDED", "read"]
    assert max(read) == 1001


def test_indented_file_that_is_too_long() -> None:
    assert kinds(INDENTED, limit=len(INDENTED) - 1) == ["LIMIT_EXCEEDED"]
    assert kinds(INDENTED, limit=len(INDENTED)) == ["1"]


def test_lines_are_answered_as_they_arrive() -> None:
    class Arriving(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            line = super().readline(size)
            if TWO.encode() in line:
                assert answered == ["1"]
            return line

    answered: list[str] = []
    for value in read_values(Arriving(f"{ONE}\n{TWO}\n".encode())):
        assert isinstance(value, dict)
        answered.append(str(value["requests"][0]["params"]["seed"]))
    assert answered == ["1", "2"]


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(text)
        return str(path)

    return write


def run(paths: list[str], transport: Transport = accepting) -> tuple[list[Any], ExitStatus, str]:
    out, err = io.StringIO(), io.StringIO()
    status = verify_files(paths, transport, out=out, err=err)
    return [json.loads(line) for line in out.getvalue().splitlines()], status, err.getvalue()


def seeds(lines: list[Any]) -> list[Any]:
    return [line["requests"][0]["seed"] if "requests" in line else line["error"]["reason"] for line in lines]


def test_all_answered(file: Callable[[str], str]) -> None:
    lines, status, err = run([file(f"{ONE}\n{TWO}"), file(INDENTED)])
    assert (seeds(lines), status, err) == ([1, 2, 1], ExitStatus.ANSWERED, "")


def test_refused_lines_print_and_the_rest_runs(file: Callable[[str], str]) -> None:
    lines, status, err = run([file(f"{WRONG}\nnonsense\n{ONE}"), file(TWO)])
    assert (seeds(lines), status, err) == (["SHAPE_MISMATCH", "MALFORMED_STEP", 1, 2], ExitStatus.REFUSED, "")


def test_refusal_by_the_service(file: Callable[[str], str]) -> None:
    def transport(step: Step) -> StepResult:
        if step.seeds == [1]:
            raise ServerFault("text", code="INTERNAL", reason="INTERNAL_ERROR")
        return accepting(step)

    lines, status, _ = run([file(f"{ONE}\n{TWO}")], transport)
    assert (seeds(lines), status) == (["INTERNAL_ERROR", 2], ExitStatus.REFUSED)


def test_unreadable_file_and_the_rest_runs(file: Callable[[str], str], tmp_path: Path) -> None:
    lines, status, err = run([str(tmp_path / "none.json"), str(tmp_path), file(ONE), file(WRONG)])
    assert (seeds(lines), status) == ([1, "SHAPE_MISMATCH"], ExitStatus.UNREADABLE)
    assert err.count("cannot read") == 2


def test_unreachable_service_ends_the_run(file: Callable[[str], str]) -> None:
    sent: list[Step] = []

    def transport(step: Step) -> StepResult:
        sent.append(step)
        raise Unavailable("nobody there", code="UNAVAILABLE")

    lines, status, err = run([file(f"{ONE}\n{TWO}"), file(ONE)], transport)
    assert (seeds(lines), status, len(sent)) == (["UNAVAILABLE"], ExitStatus.UNREACHABLE, 1)
    assert "cannot be reached" in err


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{ONE}\n{TWO}".encode())))
    lines, status, _ = run(["-"])
    assert (seeds(lines), status) == ([1, 2], ExitStatus.ANSWERED)


def test_full_output_is_not_taken_for_an_unreadable_file(file: Callable[[str], str]) -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        verify_files([file(ONE)], accepting, out=Full(), err=io.StringIO())
