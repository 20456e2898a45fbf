"""What this machine has and lacks for the service, with advice that can be followed."""

from __future__ import annotations

import enum
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from sampler_service.listen import default_address, unix_path

_SHM: Final = Path("/dev/shm")
_SMALL_SHM: Final = 256 << 20

_PACKAGES: Final = ("torch", "triton", "grpcio", "protobuf", "numpy")
_OPTIONAL: Final = ("triton",)


class Verdict(enum.Enum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"
    """Works, less well than it could."""
    FAIL = "FAIL"
    """The service cannot run, or not for everyone."""


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes:
        verdict: How bad it is.
        subject: What was looked at.
        found: What is the case.
        advice: What to do; empty where there is nothing to do.
    """

    verdict: Verdict
    subject: str
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    """Look at everything. Changes nothing and starts nothing."""
    looks: tuple[Callable[[], list[Finding]], ...] = (_python, _packages, _device, _shared_memory, _socket)
    return [finding for look in looks for finding in look()]


def _python() -> list[Finding]:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return [Finding(Verdict.OK, "python", found)]


def _packages() -> list[Finding]:
    return [_package(name) for name in _PACKAGES]


def _package(name: str) -> Finding:
    try:
        return Finding(Verdict.OK, name, version(name))
    except PackageNotFoundError:
        if name in _OPTIONAL:
            return Finding(Verdict.NOTE, name, "not installed", "needed for backend triton only")
        return Finding(Verdict.FAIL, name, "not installed", f"pip install {name}")


def _device() -> list[Finding]:
    import torch  # noqa: PLC0415  (it may be what is missing)

    from sampler_kernels import BackendUnavailable  # noqa: PLC0415
    from sampler_service.engine import Engine  # noqa: PLC0415
    from sampler_service.info import device  # noqa: PLC0415

    try:
        engine = Engine.of("auto")
    except BackendUnavailable as error:
        return [Finding(Verdict.FAIL, "backend", str(error), "start with --backend cpu until that is mended")]
    about = device(engine.device)
    found = f"{engine.backend} on {about.name}, {about.memory_bytes >> 30} GiB"
    if engine.backend == "cpu":
        cause = "torch sees no GPU" if not torch.cuda.is_available() else "triton is not installed"
        return [Finding(Verdict.NOTE, "backend", f"{found} ({cause})", "for a GPU: its driver, a CUDA torch, triton")]
    return [Finding(Verdict.OK, "backend", found), _mps()]


def _mps() -> Finding:
    pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    if (pipe / "control").exists():
        return Finding(Verdict.OK, "NVIDIA MPS", f"control daemon at {pipe}")
    advice = "start nvidia-cuda-mps-control -d before engine and service, if both share this GPU"
    return Finding(Verdict.NOTE, "NVIDIA MPS", "no control daemon: processes take turns on the GPU", advice)


def _shared_memory() -> list[Finding]:
    if not _SHM.is_dir():
        return [Finding(Verdict.NOTE, "/dev/shm", "missing", "mount a tmpfs there for shared memory between processes")]
    size = shutil.disk_usage(_SHM).total
    found = f"{size >> 20} MiB"
    if size < _SMALL_SHM:
        return [Finding(Verdict.NOTE, "/dev/shm", found, "in a container, start it with --shm-size=1g or more")]
    return [Finding(Verdict.OK, "/dev/shm", found)]


def _socket() -> list[Finding]:
    path = unix_path(default_address())
    if path is None:
        return []
    existing = next(parent for parent in path.parents if parent.exists())
    if not os.access(existing, os.W_OK):
        return [Finding(Verdict.FAIL, "socket", f"{existing} is not writable", "say --listen unix:/path of your own")]
    return [Finding(Verdict.OK, "socket", f"default unix:{path}")]
