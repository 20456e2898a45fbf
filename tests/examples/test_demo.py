"""`examples/demo.py` in small, from end to end: against a service of its own, and against one that runs already."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

import demo
from engine.service import running_service
from engine.verifier import Step, Verified
from tests.examples.conftest import ROOT
from tests.examples.fake_verifier import FakeVerifier

SMALL = ("--prompts", "2", "--tokens", "9", "--samples", "300")
SECONDS = 240
"""For a whole small run, which takes a few seconds on an idle machine."""

TOKEN_ROW = re.compile(r"(.+) \((-?\d+\.\d{3})\) \| top: \[(?:.+:-?\d+\.\d{3}(?:, )?){3}\]")


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """Where the demo makes its temporary files; a short path, because the name of a unix socket is."""
    with TemporaryDirectory(prefix="demo-") as name:
        yield Path(name)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "examples" / "demo.py"), *SMALL, *arguments]


def _environment(directory: Path) -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "kernels"), str(ROOT / "clients" / "python"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "TMPDIR": str(directory), "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def _run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(*arguments),
        env=_environment(directory),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.fixture(scope="module")
def text_run(directory: Path) -> subprocess.CompletedProcess[str]:
    return _run(directory)


@pytest.fixture(scope="module")
def text(text_run: subprocess.CompletedProcess[str]) -> str:
    assert text_run.returncode == 0, text_run.stdout + text_run.stderr
    return text_run.stdout


def test_every_check_holds(text: str) -> None:
    assert re.search(r"^all 6 checks hold; \d+\.\d s in all$", text, re.MULTILINE)
    assert len(re.findall(r"^ok      ", text, re.MULTILINE)) == 6
    assert "18 of 18 tokens equal\n" in text, "temperature 0 against the target alone: 2 prompts of 9 tokens"
    assert "over 600 seeds the law of the next token" in text


def test_it_shows_what_an_author_of_an_engine_needs(text: str) -> None:
    rows = [match for line in text.splitlines() if (match := TOKEN_ROW.fullmatch(line))]
    assert len(rows) == 18
    for name in ("accepted by position", "tokens per step", "step latency, ms"):
        assert len(re.findall(f"^{name}  .*\\d", text, re.MULTILINE)) == 2, "once at each temperature"
    assert re.search(r"^service +sampler-service \d+\.\d+\.\d+, backend (cpu|triton) on ", text, re.MULTILINE)


@pytest.mark.usefixtures("text")
def test_nothing_is_left_of_its_service(directory: Path) -> None:
    assert list(directory.iterdir()) == []
    assert _processes_at(directory) == []


def test_the_other_view_against_a_running_service_shows_the_same(text: str, directory: Path) -> None:
    with _service(directory) as address:
        first, second = (_run(directory, "--json", "--address", address) for _ in range(2))
    report, again = (json.loads(run.stdout) for run in (first, second))
    assert (first.returncode, report["passed"], second.returncode) == (0, True, 0)
    assert report["service"].endswith(f"at {address}")
    sampled, greedy = report["runs"]
    assert (sampled["temperature"], greedy["temperature"]) == (0.8, 0.0)
    assert [run["requests"] for run in again["runs"]] == [sampled["requests"], greedy["requests"]], "it has its seeds"
    listed = [
        (token["token"].replace("\n", "\\n"), f"{token['logprob']:.3f}")
        for request in sampled["requests"]
        for token in request["tokens"]
    ]
    assert [match.groups() for line in text.splitlines() if (match := TOKEN_ROW.fullmatch(line))] == listed


def test_no_service_at_the_address(directory: Path) -> None:
    done = _run(directory, "--address", f"unix:{directory}/nobody")
    assert done.returncode == demo.NO_SERVICE
    assert done.stdout == ""
    assert "demo: UNAVAILABLE" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failed_check_is_the_exit_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Wrong(FakeVerifier):
        """Takes no draft token and goes on with token 1, whatever the rows say."""

        def verify(self, step: Step) -> Sequence[Verified]:
            return [
                Verified((type(v.tokens[0])(1, v.tokens[0].logprob, 1, v.tokens[0].top),), 0)
                for v in super().verify(step)
            ]

    @contextmanager
    def connect(_: str | None) -> Iterator[tuple[FakeVerifier, str]]:
        yield Wrong(), "a faulty service"

    monkeypatch.setattr(demo, "connect", connect)
    assert demo.main(SMALL) == demo.CHECK_FAILED
    assert re.search(r"[1-6] of 6 checks FAILED", capsys.readouterr().out)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_service_too(number: signal.Signals, directory: Path) -> None:
    process = subprocess.Popen(
        # More than it can do before the signal comes.
        _command("--tokens", "4096"),
        env=_environment(directory),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(lambda: bool(_processes_at(directory)))
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    finally:
        process.kill()
        process.wait(60)
    assert _processes_at(directory) == []
    assert list(directory.iterdir()) == []


@contextmanager
def _service(directory: Path) -> Iterator[str]:
    """A service as the demo starts it, with this checkout's code."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TMPDIR", "PYTHONPATH"):
            patch.setenv(name, _environment(directory)[name])
        with running_service() as address:
            yield address


def _processes_at(directory: Path) -> list[int]:
    """Ids of the services that listen below `directory`."""
    listening = f"unix:{directory}/"
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(word.startswith(listening) for word in process.info["cmdline"] or ())
        and "serve" in process.info["cmdline"]
    ]


def _wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
