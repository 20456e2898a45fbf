"""Every fault in small; ``make chaos`` runs them at length. And proof that what watches them sees something."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.drain import drain
from tests.chaos.fuzz import fuzz
from tests.chaos.halfopen import halfopen
from tests.chaos.killed import killed
from tests.chaos.report import Report
from tests.chaos.restart import restart
from tests.chaos.slow import slow
from tests.service.serving import ROOT, environment

# A process each, sometimes several, and seconds of waiting.
pytestmark = pytest.mark.slow


@pytest.fixture
def report() -> Report:
    return Report()


def test_fuzz(report: Report, tmp_path: Path) -> None:
    fuzz(report, tmp_path, calls=5000, seed=1)
    assert not report.findings
    assert report.done.total() >= 5000


def test_killed(report: Report, tmp_path: Path) -> None:
    killed(report, tmp_path, clients=2, seed=1)
    assert not report.findings
    assert report.done["clients killed"] == 2


def test_slow(report: Report, tmp_path: Path) -> None:
    slow(report, tmp_path, clients=2)
    assert not report.findings
    assert report.done["messages taken from them"] > 2 * 8


def test_halfopen(report: Report, tmp_path: Path) -> None:
    halfopen(report, tmp_path, clients=1)
    assert not report.findings
    assert report.done["clients stopped with all streams"] == 1


def test_drain(report: Report, tmp_path: Path) -> None:
    drain(report, tmp_path, rounds=2, seed=1)
    assert not report.findings
    assert report.done["calls answered"] > 0


def test_restart(report: Report, tmp_path: Path) -> None:
    restart(report, tmp_path, kills=1, seed=1)
    assert not report.findings
    assert report.done["steps"] > 0


LEAKY = """
import sys
from sampler_service import cli, servicer, stream
kept, parse = [], servicer.parse
def keeping(kind, data):
    kept.append(bytearray(data))
    return parse(kind, data)
servicer.parse = stream.parse = keeping
cli.main(["serve", *sys.argv[1:]])
"""
"""A server that keeps a copy of every message."""

CARELESS = """
import sys
from sampler_service import cli, servicer, stream
from sampler_service.codec.tensors import TensorReader
def parse(kind, data):
    return kind.FromString(data), TensorReader(None, len(data))
servicer.parse = stream.parse = parse
cli.main(["serve", *sys.argv[1:]])
"""
"""A server that answers INTERNAL to what it cannot parse, and leaves it to the parser how much that may cost."""


def test_a_leak_is_seen(report: Report, tmp_path: Path) -> None:
    fuzz(report, tmp_path, calls=1000, seed=1, program=["-c", LEAKY])
    assert [one for one in report.findings if one.startswith("memory gained")] == report.findings


def test_a_wrong_code_is_seen(report: Report, tmp_path: Path) -> None:
    fuzz(report, tmp_path, calls=300, seed=1, program=["-c", CARELESS])
    assert any(one.startswith("noise: INTERNAL_ERROR, not one of") for one in report.findings)
    assert any(one.startswith("many fields: ") for one in report.findings)
    assert "the server's log holds a traceback" in report.findings


def test_the_command_says_what_it_found() -> None:
    arguments = ["--only", "drain", "--drain", "1"]
    command = [sys.executable, str(ROOT / "tests" / "chaos" / "run.py"), *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "nothing found" in done.stdout
