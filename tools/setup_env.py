"""Builds the development environment, `.venv` at the root of the repository.

Run as `make setup`, or `python3 tools/setup_env.py`, with any Python from 3.10 on; needs nothing but the standard
library and a package index. Before anything large is fetched it says what and how much. A torch that this interpreter
already has is used where it fits the machine. When nothing has changed since the last run, it only says so.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
PIP_INSTALL: tuple[str | Path, ...] = (VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check")
STAMP = VENV / "setup-stamp.json"
INPUTS = ("pyproject.toml", "clients/python/pyproject.toml", "clients/loadtest/pyproject.toml", "tools/setup_env.py")

MIN_PYTHON = (3, 10)
# Releases from MIN_TORCH on are used where they are found; TORCH is what is fetched where there is none.
MIN_TORCH = (2, 11)
TORCH = "torch==2.13.0"
# Only asked when the machine has no GPU and the index that pip is set up with offers a CUDA build.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

# Downloads on x86-64, rounded up, of the releases pinned here.
PIP_SIZE = "2 MB"
TORCH_CPU_SIZE = "200 MB"
TORCH_CUDA_SIZE = "3 GB"
TRITON_SIZE = "250 MB"
TOOLS_SIZE = "130 MB"

TORCH_PROBE = """
import json, sys
try:
    import torch
except Exception:
    print("null")
else:
    site = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    print(json.dumps({"version": torch.__version__, "cuda": torch.version.cuda, "paths": site}))
"""
BORROWED_PINS = """
import sys
from importlib.metadata import distribution, requires
for requirement in requires("sampler-service"):
    pin, _, marker = requirement.partition(";")
    name, exact, _ = pin.partition("==")
    if "dev" in marker and exact and sys.prefix not in str(distribution(name).locate_file("")):
        print(pin)
"""
SUMMARY = """
import importlib.metadata, torch
device = torch.cuda.get_device_name() if torch.cuda.is_available() else "the CPU"
print(f"setup: ready, torch {torch.__version__} on {device}, triton {importlib.metadata.version('triton')}")
"""


class SetupError(Exception):
    """Something that the person at the keyboard has to put right; the text says what."""


@dataclass(frozen=True)
class Torch:
    """A torch that an interpreter can import: its version, its CUDA version if any, and where its packages lie."""

    version: str
    cuda: str | None
    paths: list[str]

    def suits(self, *, gpu: bool) -> bool:
        """Whether it is recent enough, and built for CUDA where there is a GPU."""
        match = re.match(r"(\d+)\.(\d+)", self.version)
        recent = match is not None and (int(match[1]), int(match[2])) >= MIN_TORCH
        return recent and (self.cuda is not None or not gpu)


@dataclass(frozen=True)
class Build:
    """A build of torch that pip would fetch, and the pip options that make it do so."""

    cuda: bool
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stamp:
    """What `.venv` was built from."""

    python: str
    root: str
    inputs: str

    @staticmethod
    def wanted() -> Stamp:
        """The stamp that an environment built now would get."""
        digest = hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in INPUTS))
        return Stamp(f"{sys.version} in {sys.base_prefix}", str(ROOT), digest.hexdigest())

    @staticmethod
    def found() -> Stamp | None:
        """The stamp of the environment as it is; None for a missing, broken or unfinished one."""
        try:
            return Stamp(**json.loads(STAMP.read_text())) if VENV_PYTHON.exists() else None
        except (OSError, ValueError, TypeError):
            return None


def say(text: str) -> None:
    """Prints one line at once, so that it comes before the output of the command it announces."""
    print(f"setup: {text}", flush=True)


def run(*command: str | Path) -> None:
    """Runs a command whose output the person at the keyboard sees.

    Raises:
        SetupError: It failed.
    """
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status != 0:
        raise SetupError(f"this command failed with status {status}: {' '.join(map(str, command))}")


def pip_install(*arguments: str, quiet: bool = True) -> None:
    """Installs into `.venv` with pip, as pip is set up on this machine."""
    run(*PIP_INSTALL, *(["-qq"] if quiet else []), *arguments)


def has_gpu() -> bool:
    """Whether an NVIDIA driver lists a GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    return "GPU" in subprocess.run([tool, "-L"], capture_output=True, text=True, check=False).stdout


def find_torch(python: str | Path) -> Torch | None:
    """The torch that an interpreter imports, if it does."""
    probe = subprocess.run([python, "-c", TORCH_PROBE], capture_output=True, text=True, check=False)
    found = json.loads(probe.stdout) if probe.returncode == 0 else None
    return Torch(**found) if found else None


def offered_build(*options: str) -> Build | None:
    """The build that pip would fetch for `TORCH`, asked from the index without fetching it; None if pip finds none."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        arguments = ["--dry-run", "--ignore-installed", "--no-deps", *options, "--report", str(report), TORCH]
        asked = subprocess.run([*PIP_INSTALL, "-qq", *arguments], capture_output=True, check=False)
        if asked.returncode != 0:
            return None
        metadata = json.loads(report.read_text())["install"][0]["metadata"]
    # CUDA builds of torch require CUDA's libraries as packages; CPU builds require none.
    needs = metadata.get("requires_dist", [])
    return Build(cuda=any(need.startswith(("nvidia-", "cuda-")) for need in needs), options=options)


def choose_build(*, gpu: bool) -> Build:
    """The build to fetch: the package index's own, or, where that is a CUDA build without a use, PyTorch's CPU build.

    Raises:
        SetupError: pip offers no torch for this interpreter.
    """
    default = offered_build()
    if default is not None and (gpu or not default.cuda):
        return default
    # One short attempt: many networks reach only their own package index.
    cpu = offered_build("--index-url", CPU_INDEX, "--retries", "0", "--timeout", "5")
    if cpu is not None:
        return cpu
    if default is None:
        raise SetupError(f"pip finds no {TORCH} for Python {sysconfig.get_python_version()} on its package index")
    return default


def create_venv() -> None:
    """Makes an empty `.venv` with this interpreter, in place of one that was there, and a pip that can look ahead.

    Raises:
        SetupError: The interpreter lacks what that takes.
    """
    say(f"making .venv with Python {sys.version.split()[0]} (fetches pip: {PIP_SIZE})")
    try:
        import ensurepip  # noqa: F401, PLC0415  (Debian and Ubuntu ship it apart)
    except ImportError:
        version = sysconfig.get_python_version()
        raise SetupError(
            f"{sys.executable} can't make virtual environments; on Debian and Ubuntu: apt-get install "
            f"python{version}-venv; or name another interpreter: make setup PYTHON=python3.12"
        ) from None
    run(sys.executable, "-m", "venv", "--clear", VENV)
    # Older releases of pip fetch a whole wheel to learn what it requires.
    pip_install("pip>=25")


def link_packages(torch: Torch) -> None:
    """Lets `.venv` import the packages of the interpreter that it was made with, after its own.

    What `--system-site-packages` does, but also where that interpreter is itself that of a virtual environment.
    """
    purelib = subprocess.run(
        [VENV_PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (Path(purelib) / "interpreter-packages.pth").write_text("".join(f"{path}\n" for path in torch.paths))


def provide_torch(*, gpu: bool) -> None:
    """Gives `.venv` a torch that suits the machine: the one it has, else the interpreter's, else a fetched one."""
    if (present := find_torch(VENV_PYTHON)) and present.suits(gpu=gpu):
        say(f"torch: keeping {present.version}")
        return
    if not in_venv() and (own := find_torch(sys.executable)):
        if own.suits(gpu=gpu):
            say(f"torch: using {own.version} of {sys.executable}, nothing to fetch")
            link_packages(own)
            return
        say(f"torch: {own.version} of {sys.executable} is too old or not made for the GPU here")
    build = choose_build(gpu=gpu)
    if build.cuda:
        why = "for the GPU here" if gpu else "there is no GPU here, but no CPU build within reach"
        say(f"torch: fetching {TORCH}, CUDA build, about {TORCH_CUDA_SIZE} with its libraries ({why})")
    else:
        why = "no GPU here" if not gpu else "there is a GPU here, but pip is offered no CUDA build"
        say(f"torch: fetching {TORCH}, CPU build, about {TORCH_CPU_SIZE} ({why})")
    pip_install(*build.options, TORCH, quiet=False)


def own_tools() -> None:
    """Installs the pinned tools that pip found among the interpreter's packages into `.venv` as well.

    A package that is only linked brings its modules but not its commands, `ruff` or `buf`.
    """
    probe = subprocess.run([VENV_PYTHON, "-c", BORROWED_PINS], capture_output=True, text=True, check=True)
    if pins := probe.stdout.split():
        pip_install("--ignore-installed", "--no-deps", *pins)


def in_venv() -> bool:
    """Whether this script is run by `.venv` itself, as it is in a shell where that is activated."""
    return Path(sys.prefix).resolve() == VENV.resolve()


@contextmanager
def only_one() -> Iterator[None]:
    """Holds back a second set-up of the same checkout until the first has ended."""
    descriptor = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def set_up() -> None:
    """Brings `.venv` up to date with the files named in `INPUTS`.

    Raises:
        SetupError: Something that only the person at the keyboard can put right.
    """
    wanted, found = Stamp.wanted(), Stamp.found()
    if found == wanted:
        say(".venv is up to date")
        return
    if in_venv() or (found is not None and (found.python, found.root) == (wanted.python, wanted.root)):
        say(".venv: what it is built from has changed, fetching only what differs")
    else:
        create_venv()
        say(f"later: packages and tools, about {TOOLS_SIZE}, and {TRITON_SIZE} for triton where torch brings none")
    STAMP.unlink(missing_ok=True)
    gpu = has_gpu()
    provide_torch(gpu=gpu)
    say("installing packages and tools")
    pip_install("--editable", "./clients/python", "--editable", "./clients/loadtest", "--editable", ".[dev]")
    own_tools()
    run(VENV_PYTHON, "-c", SUMMARY)
    STAMP.write_text(json.dumps(asdict(wanted)))


def main() -> int:
    """Sets up; returns the exit status."""
    if sys.version_info < MIN_PYTHON:
        print(f"setup: needs Python 3.10 or newer, this is {sys.version.split()[0]}: make setup PYTHON=python3.12")
        return 1
    try:
        with only_one():
            set_up()
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
