"""The two distributions as others install them: names, versions, contents, and what an import brings along."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

import sampler_client
import sampler_loadtest
import sampler_service
from tools import setup_env

ROOT = Path(__file__).resolve().parent.parent

IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def imported_by(package: str) -> set[str]:
    """Top-level modules loaded in a new process once a package and all its modules are imported."""
    result = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, package], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_client_imports_neither_torch_nor_the_service() -> None:
    loaded = imported_by("sampler_client")
    assert "sampler_client" in loaded
    assert loaded.isdisjoint({"torch", "triton", "sampler_kernels", "sampler_service"})


def test_kernels_import_neither_grpc_nor_the_service() -> None:
    loaded = imported_by("sampler_kernels")
    assert {"sampler_kernels", "torch"} <= loaded
    assert loaded.isdisjoint({"grpc", "sampler_client", "sampler_service"})


def test_versions_agree() -> None:
    assert sampler_service.__version__ == sampler_client.__version__ == sampler_loadtest.__version__


def test_load_test_imports_neither_torch_nor_the_service() -> None:
    loaded = imported_by("sampler_loadtest")
    assert {"sampler_loadtest", "sampler_client"} <= loaded
    assert loaded.isdisjoint({"torch", "triton", "sampler_kernels", "sampler_service"})


def test_folders_are_not_packages() -> None:
    # `kernels` and `clients` are names that other distributions own.
    assert not list(ROOT.glob("kernels/__init__.py*")) + list(ROOT.glob("clients/**/python/__init__.py*"))
    assert not (ROOT / "clients" / "__init__.py").exists()


@dataclass(frozen=True)
class Wheel:
    """A built wheel: its files without the metadata folder's, and the METADATA file."""

    files: set[str]
    metadata: Message
    entry_points: str

    def top_level(self) -> set[str]:
        """The names that installing it makes importable."""
        return {PurePosixPath(name).parts[0] for name in self.files}

    def requirements(self) -> list[str]:
        """What it requires without any extra."""
        return [need for need in self.metadata.get_all("Requires-Dist", []) if "extra ==" not in need]


def build_wheel(project: Path, output: Path) -> Wheel:
    """Builds a project's wheel with the build backend of this environment, offline, and reads it."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(output)]
    built = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = output.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        names = [PurePosixPath(name) for name in archive.namelist()]
        info = next(name.parts[0] for name in names if name.parts[0].endswith(".dist-info"))
        return Wheel(
            files={str(name) for name in names if name.parts[0] != info},
            metadata=Parser().parsestr(archive.read(f"{info}/METADATA").decode()),
            entry_points=archive.read(f"{info}/entry_points.txt").decode(),
        )


@pytest.fixture(scope="module")
def service_wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return build_wheel(ROOT, tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def client_wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    return build_wheel(ROOT / "clients" / "python", tmp_path_factory.mktemp("client"))


def source_files(*packages: Path) -> set[str]:
    """Every file of the packages, named as in a wheel."""
    return {
        path.relative_to(package.parent).as_posix()
        for package in packages
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.slow
def test_service_wheel_holds_the_service_and_the_kernels(service_wheel: Wheel) -> None:
    assert service_wheel.files == source_files(ROOT / "sampler_service", ROOT / "kernels" / "sampler_kernels")
    assert service_wheel.top_level() == {"sampler_service", "sampler_kernels"}
    assert {"sampler_service/py.typed", "sampler_kernels/py.typed"} <= service_wheel.files
    assert service_wheel.metadata["License-Expression"] == "Apache-2.0"
    assert "sampler-service = sampler_service.cli:main" in service_wheel.entry_points


@pytest.mark.slow
def test_service_requires_the_client_of_its_version(service_wheel: Wheel) -> None:
    assert service_wheel.metadata["Version"] == sampler_service.__version__
    assert f"sampler-client=={sampler_service.__version__}" in service_wheel.requirements()


@pytest.mark.slow
def test_setup_reuses_exactly_the_torch_that_the_service_accepts(service_wheel: Wheel) -> None:
    oldest = ".".join(map(str, setup_env.MIN_TORCH))
    assert f"torch<3,>={oldest}" in service_wheel.requirements()


@pytest.mark.slow
def test_load_test_wheel_is_apart_from_the_client(tmp_path: Path) -> None:
    wheel = build_wheel(ROOT / "clients" / "loadtest", tmp_path)
    assert wheel.files == source_files(ROOT / "clients" / "loadtest" / "sampler_loadtest")
    assert "sampler-loadtest = sampler_loadtest.cli:main" in wheel.entry_points
    assert f"sampler-client=={sampler_client.__version__}" in wheel.requirements()


@pytest.mark.slow
def test_client_wheel_holds_the_client_and_requires_no_torch(client_wheel: Wheel) -> None:
    assert client_wheel.files == source_files(ROOT / "clients" / "python" / "sampler_client")
    assert client_wheel.top_level() == {"sampler_client"}
    assert "sampler_client/py.typed" in client_wheel.files
    assert client_wheel.metadata["Version"] == sampler_client.__version__
    assert client_wheel.metadata["License-Expression"] == "Apache-2.0"
    assert "sampler-client = sampler_client.cli:main" in client_wheel.entry_points
    names = {need.replace("<", ">").partition(">")[0] for need in client_wheel.requirements()}
    assert names == {"grpcio", "googleapis-common-protos", "protobuf", "numpy", "ml-dtypes"}
