"""The command-line programs as a document's reader has them, run from this checkout."""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.docs.blocks import ROOT

PROGRAMS = {
    "sampler-service": "sampler_service.cli",
    "sampler-client": "sampler_client.cli",
    "sampler-loadtest": "sampler_loadtest.cli",
}
PACKAGES_AT = ("", "kernels", "clients/python", "clients/loadtest")
STARTED_WITHIN_S = 120
ENDED_WITHIN_S = 60


def is_built(program: str) -> bool:
    """Whether this checkout has the program."""
    try:
        return importlib.util.find_spec(PROGRAMS[program]) is not None
    except ModuleNotFoundError:
        return False


def environment(bin_folder: Path) -> dict[str, str]:
    """Writes the programs into ``bin_folder`` and returns an environment that finds them and this checkout's code.

    ``python`` is the running one there, as in an environment that was activated.
    """
    code = "import sys; from {} import main; sys.exit(main())"
    start = {program: f'-c "{code.format(module)}"' for program, module in PROGRAMS.items()}
    for program, how in {**start, "python": ""}.items():
        script = bin_folder / program
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {how} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
    packages = [str(ROOT / place) for place in PACKAGES_AT]
    return {
        **os.environ,
        "PATH": os.pathsep.join([str(bin_folder), os.environ.get("PATH", os.defpath)]),
        # Absolute, because the commands run in another folder.
        "PYTHONPATH": os.pathsep.join([*packages, *(path for path in sys.path if path)]),
    }


def run(command: str, folder: Path, env: dict[str, str], given: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a shell command in a folder; never raises for its exit status."""
    return subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=env,
        input=given,
        capture_output=True,
        text=True,
        timeout=STARTED_WITHIN_S + ENDED_WITHIN_S,
        check=False,
    )


@contextmanager
def started(command: str, folder: Path, env: dict[str, str]) -> Iterator[str]:
    """A page's command for a server, for as long as the context lasts; gives the address that it prints first.

    Raises:
        AssertionError: It ends before it listens, or with another status than 0.
    """
    with (
        (folder / "service.log").open("w", encoding="utf-8") as log,
        subprocess.Popen(
            shlex.split(command), cwd=folder, env=env, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            # It prints the line when it serves, or ends and closes the pipe.
            line = process.stdout.readline()
            assert line.startswith("listening on "), (folder / "service.log").read_text(encoding="utf-8")
            yield line.removeprefix("listening on ").strip()
        finally:
            process.terminate()
            status = process.wait(ENDED_WITHIN_S)
        assert status == 0


def service(folder: Path, env: dict[str, str]) -> AbstractContextManager[str]:
    """A service on the unix socket ``sampler.sock`` in ``folder``, for as long as the context lasts."""
    return started(f"sampler-service serve --listen unix:{folder}/sampler.sock --backend cpu", folder, env)
