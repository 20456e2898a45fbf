"""A service of the demo's own: started on a private unix socket, stopped when the demo is done."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SERVE = (sys.executable, "-m", "sampler_service", "serve")
READY = "listening on "
SECONDS_TO_STOP = 15.0


@contextmanager
def running_service(serve: Sequence[str] = SERVE) -> Iterator[str]:
    """Run `serve` and yield its address, once it says that it listens. Its log goes to this process's standard error.

    Raises RuntimeError where the process ends before that.
    """
    with tempfile.TemporaryDirectory(prefix="sampler-demo-") as directory:
        command = [*serve, "--listen", f"unix:{Path(directory) / 'service.sock'}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield _address(process)
            finally:
                process.terminate()
                try:
                    process.wait(SECONDS_TO_STOP)
                except subprocess.TimeoutExpired:
                    process.kill()


def _address(process: "subprocess.Popen[str]") -> str:
    """The address in the line that the service prints when it serves."""
    assert process.stdout is not None  # it is a pipe
    for line in process.stdout:
        if line.startswith(READY):
            return line.removeprefix(READY).strip()
    raise RuntimeError(f"the service ended with status {process.wait()} before it listened; its log says why")
