"""The command ``sampler-client`` as a shell runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sampler_client.cli import main
from tests.client.fakes import FakeService

REQUEST = '{"target_logits": [[0, 1], [1, 0]], "draft_token_ids": [1], "params": {"seed": 1}}'
STEP = f'{{"vocab_size": 2, "requests": [{REQUEST}]}}'


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "step.json"
    path.write_text(f"{STEP}\nnonsense\n{STEP}\n")
    return str(path)


def test_verify(address: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--address", address, file]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [next(iter(line)) for line in lines] == ["requests", "error", "requests"]
    assert lines[0]["requests"][0]["token_ids"] == [1, 0]


def test_info(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--address", address]) == 0
    assert json.loads(capsys.readouterr().out)["limits"]["max_batch_size"] == 512


def test_nobody_there(tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    nobody = f"unix:{tmp_path}/nobody"
    assert main(["verify", "--address", nobody, file]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "UNAVAILABLE"
    assert main(["info", "--address", nobody]) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["verify"],
        ["verify", "file"],
        ["verify", "--address", "unix:/x"],
        ["info", "--address", "unix:/x", "--timeout", "0"],
        ["info", "--address", "unix:/x", "--timeout", "soon"],
        ["verify", "--address", "", "file"],
        ["walk"],
    ],
    ids=" ".join,
)
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: sampler-client" in capsys.readouterr().err


def test_as_a_process(address: str, service: FakeService, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sampler_client", "verify", "--address", address]
    done = subprocess.run([*command, "-"], input=f"{STEP}\n", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["requests"][0]["status"] == "OK"
    missing = subprocess.run([*command, str(tmp_path / "x")], capture_output=True, text=True, timeout=60, check=False)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert len(service.steps) == 1


def test_reader_that_has_seen_enough(address: str) -> None:
    command = [sys.executable, "-m", "sampler_client", "verify", "--address", address, "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(f"{STEP}\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(f"{STEP}\n" * 3)
        process.stdin.close()
        assert process.wait(60) == 128 + 13
        assert process.stderr.read() == ""
