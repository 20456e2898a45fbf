"""buf holds the contract to its style and to its baseline, and notices when either is broken."""

import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

ROOT = Path(__file__).resolve().parents[2]
BASELINE = ROOT / "protos" / "baseline.binpb"
BUF = shutil.which("buf", path=sysconfig.get_path("scripts")) or shutil.which("buf")

pytestmark = pytest.mark.skipif(BUF is None, reason="buf is not installed (package buf-bin)")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A copy of the contract and its rules, to be spoilt at will."""
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    return tmp_path


def buf(folder: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs buf in a folder; never raises for its exit status."""
    assert BUF is not None
    return subprocess.run([BUF, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def spoil(workspace: Path, old: str, new: str) -> None:
    """Replaces text that the contract holds exactly once."""
    path = workspace / "protos" / "sampler" / "v1" / "sampler.proto"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_contract_passes_lint_and_is_formatted() -> None:
    for arguments in (["lint"], ["format", "--diff", "--exit-code"]):
        done = buf(ROOT, arguments)
        assert done.returncode == 0, done.stdout + done.stderr


def test_lint_notices_a_field_without_comment(workspace: Path) -> None:
    spoil(workspace, "  // Where the time went.\n", "")
    done = buf(workspace, ["lint"])
    assert done.returncode != 0
    assert '"timing"' in done.stdout + done.stderr


def test_contract_is_compatible_with_its_baseline() -> None:
    done = buf(ROOT, ["breaking", "--against", str(BASELINE)])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  int64 top_k = 4;", "  int64 top_k = 40;"),
        ("  repeated fixed64 seeds = 11;", "  repeated uint64 seeds = 11;"),
        ("  METHOD_BLOCK = 3;\n", "  METHOD_BLOCK_VERIFICATION = 3;\n"),
        ("  rpc RenewSession(RenewSessionRequest)", "  rpc ProlongSession(RenewSessionRequest)"),
    ],
    ids=["field number", "field type", "enum value", "rpc"],
)
def test_guard_notices_a_break(workspace: Path, old: str, new: str) -> None:
    spoil(workspace, old, new)
    assert buf(workspace, ["breaking", "--against", "protos/baseline.binpb"]).returncode != 0


def test_baseline_guards_the_whole_contract(tmp_path: Path) -> None:
    image = tmp_path / "current.binpb"
    done = buf(ROOT, ["build", "--exclude-source-info", "--output", str(image)])
    assert done.returncode == 0, done.stderr
    # Parsed, because another release of buf may lay out its own annotations differently.
    current, baseline = (FileDescriptorSet.FromString(path.read_bytes()) for path in (image, BASELINE))
    for image_set in (current, baseline):
        for file in image_set.file:
            file.DiscardUnknownFields()
    assert current == baseline, "the contract has grown: renew the baseline as protos/README.md says"
