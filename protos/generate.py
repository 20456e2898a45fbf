"""Generates the Python stubs of the wire contract.

    python protos/generate.py [--out DIRECTORY]

writes sampler_pb2.py, sampler_pb2_grpc.py and their .pyi below DIRECTORY/sampler_client/v1; DIRECTORY defaults to
clients/python, where the stubs are committed. The versions below are pinned because generated code runs on newer
runtimes and never on older ones, and because a test compares the committed stubs byte for byte.
"""

import argparse
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINNED_VERSIONS = {"grpcio-tools": "1.81.1", "mypy-protobuf": "5.1.0"}


class GeneratorUnavailableError(Exception):
    """A generator is missing or has another version than the pinned one; the text names it."""


def check_versions() -> None:
    """Raises GeneratorUnavailableError unless this interpreter has every generator in its pinned version."""
    for package, pinned in PINNED_VERSIONS.items():
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError:
            raise GeneratorUnavailableError(f"{package} is not installed, {pinned} is needed") from None
        if found != pinned:
            raise GeneratorUnavailableError(f"{package} is {found}, {pinned} is needed")


def generate(out: Path) -> None:
    """Writes the stubs below out/sampler_client/v1; out is created if need be.

    Raises GeneratorUnavailableError (see check_versions), or CalledProcessError if protoc refuses the contract.
    """
    check_versions()
    out.mkdir(parents=True, exist_ok=True)
    # protoc looks plugins up on PATH, where a virtual environment that is not activated is missing.
    scripts = Path(sysconfig.get_path("scripts"))
    plugins = [f"--plugin={name}={scripts / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    # The path mapping makes protoc believe that the contract lies in the package that the stubs are imported from,
    # so that their imports of each other come out right.
    command = [sys.executable, "-m", "grpc_tools.protoc", "-Isampler_client/v1=protos/sampler/v1", *plugins]
    command += [f"--{kind}_out={out.resolve()}" for kind in ("python", "grpc_python")]
    command += [f"--{kind}_out=quiet:{out.resolve()}" for kind in ("mypy", "mypy_grpc")]
    subprocess.run([*command, "sampler_client/v1/sampler.proto"], check=True, cwd=ROOT)


def main() -> int:
    """Command line: exit status 0 when written, 1 when protoc refused, 3 when a pinned generator is missing."""
    parser = argparse.ArgumentParser(description="Generate the Python stubs of the wire contract.")
    parser.add_argument("--out", type=Path, default=ROOT / "clients" / "python", help="default: clients/python")
    try:
        generate(parser.parse_args().out)
    except GeneratorUnavailableError as error:
        print(error, file=sys.stderr)
        return 3
    except subprocess.CalledProcessError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
