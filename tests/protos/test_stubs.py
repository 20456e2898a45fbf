"""The committed stubs are what the pinned generators make of the contract."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "clients" / "python" / "sampler_client" / "v1"
STUBS = {"sampler_pb2.py", "sampler_pb2.pyi", "sampler_pb2_grpc.py", "sampler_pb2_grpc.pyi"}
GENERATOR_MISSING = 3  # exit status of protos/generate.py where a pinned generator is not installed


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of freshly generated stubs."""
    out = tmp_path_factory.mktemp("stubs")
    command = [sys.executable, str(ROOT / "protos" / "generate.py"), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == GENERATOR_MISSING:
        pytest.skip(f"stubs can only be compared with the pinned generators: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return out / "sampler_client" / "v1"


def test_generator_writes_exactly_the_stubs(generated: Path) -> None:
    assert {path.name for path in generated.iterdir()} == STUBS
    assert {path.name for path in COMMITTED.iterdir() if "_pb2" in path.name} == STUBS


@pytest.mark.parametrize("name", sorted(STUBS))
def test_committed_stub_is_current(generated: Path, name: str) -> None:
    # Compared as a flag: a diff of generated code would bury the message.
    same = (generated / name).read_bytes() == (COMMITTED / name).read_bytes()
    assert same, f"{name} is stale: run python protos/generate.py and commit the result"
