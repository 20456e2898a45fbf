"""The command against a real service: small, and bounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sampler_loadtest.addresses import is_local
from sampler_loadtest.cli import ExitStatus, main
from sampler_loadtest.echo_server import OPTIONS
from sampler_service.config import Settings
from sampler_service.limits import Limits
from sampler_service.server import channel_arguments

SMALL = ("--vocab-size", "64", "--drafts", "2", "--turns", "2", "--warmup", "2")


def load(address: str, tmp_path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    file = tmp_path / "report.json"
    status = main(["--address", address, *SMALL, *options, "--json", str(file)])
    return status, json.loads(file.read_text())


def test_service_and_echo_in_one_run(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = load(address, tmp_path, "--count", "40", "--concurrency", "2", "--top-logprobs", "3")
    assert status == ExitStatus.ANSWERED
    for side in ("service", "echo"):
        assert report[side]["status_codes"] == {"OK": 40}
    # One to three tokens a request of two drafts.
    assert 1 <= report["service"]["tokens_per_request"] <= 3
    assert report["service"]["breakdown_us"]["device"]["p50"] > 0
    assert len(report["compared"]["ratio_of_turns"]) == 2
    # 2 tokens a request at least are 3 entries each of an id and a value.
    assert report["load"]["answer_bytes"] > 3 * 8
    assert report["load"]["message_bytes"] > 2 * 64 * 5
    printed = capsys.readouterr().out
    assert "p99.9, us" in printed
    assert "times the floor" in printed


def test_unary_for_a_time_without_the_echo(address: str, tmp_path: Path) -> None:
    status, report = load(address, tmp_path, "--duration", "0.3", "--transport", "unary", "--no-echo")
    assert status == ExitStatus.ANSWERED
    assert report["service"]["steps"] > 0
    assert "echo" not in report
    assert "compared" not in report


def test_open_loop(address: str, tmp_path: Path) -> None:
    status, report = load(address, tmp_path, "--rate", "50", "--count", "10", "--no-echo")
    assert status == ExitStatus.ANSWERED
    # Two turns of five steps, the last of each 4 spaces of 20 ms after the first.
    assert report["service"]["seconds"] >= 2 * 4 / 50
    assert "late_us" in report["service"]


def test_refused_steps_fail_the_command(address: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = ["--address", address, *SMALL, "--count", "4", "--transport", "unary", "--temperature", "-1"]
    assert main([*options, "--json", str(tmp_path / "none")]) == ExitStatus.FAILED
    assert "INVALID_ARGUMENT" in capsys.readouterr().err


def test_nobody_listens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--address", f"unix:{tmp_path}/none", *SMALL]) == ExitStatus.UNREACHABLE
    assert "UNAVAILABLE" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ("--address", "10.0.0.1:5000"),
        ("--address", "unix:/x", "--rate", "5", "--pause", "1"),
        ("--address", "unix:/x", "--count", "0"),
        ("--address", "unix:/x", "--duration", "1e9"),
        ("--address", "unix:/x", "--concurrency", "100000"),
    ],
)
def test_usage(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(options)
    assert ended.value.code == ExitStatus.USAGE
    assert "sampler-loadtest: error:" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["unix:/x", "unix:///x", "127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1"])
def test_local_addresses(address: str) -> None:
    assert is_local(address)


@pytest.mark.parametrize(
    "address", ["10.0.0.1:1", "0.0.0.0:1", "example.org:1", "dns:///127.0.0.1:1", "127.0.0.1", "[2001:db8::1]:1", ""]
)
def test_other_addresses(address: str) -> None:
    assert not is_local(address)


def test_the_echo_serves_with_the_options_of_the_service() -> None:
    assert list(OPTIONS) == channel_arguments(Limits(), Settings().keepalive_seconds)
