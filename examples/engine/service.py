"""A service of the demo's own: started on a private unix socket, stopped when the demo is done."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Timer

# Its log goes to standard error, among the demo's progress: only what somebody should know. One thread, because at this
# vocabulary a step on the CPU is too short to share, and threads that wait for one another take the models' cores.
SERVE = (sys.executable, "-m", "sampler_service", "serve", "--log-level", "warning", "--threads", "1")
READY = "listening on "
SECONDS_TO_START = 300.0
"""Covers a first start on a GPU, which compiles the kernels."""

SECONDS_TO_STOP = 15.0


class ServiceFailed(RuntimeError):
    """The service did not come up; its log on standard error says more."""


@contextmanager
def running_service(serve: Sequence[str] = SERVE, *, seconds_to_start: float = SECONDS_TO_START) -> Iterator[str]:
    """Run `serve` and yield its address, once it says that it listens. Its log goes to this process's standard error.

    Raises ServiceFailed where the process ends before that, or says nothing for `seconds_to_start`.
    """
    with tempfile.TemporaryDirectory(prefix="sampler-demo-") as directory:
        command = [*serve, "--listen", f"unix:{Path(directory) / 'service.sock'}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield _address(process, seconds_to_start)
            finally:
                process.terminate()
                try:
                    process.wait(SECONDS_TO_STOP)
                except subprocess.TimeoutExpired:
                    process.kill()


def _address(process: "subprocess.Popen[str]", seconds: float) -> str:
    """The address in the line that the service prints when it serves."""
    assert process.stdout is not None  # it is a pipe
    late = Event()

    def give_up() -> None:
        late.set()
        process.kill()  # which closes the pipe, so that the loop below ends

    timer = Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        for line in process.stdout:
            if line.startswith(READY):
                return line.removeprefix(READY).strip()
    finally:
        timer.cancel()
    status = process.wait()
    if late.is_set():
        raise ServiceFailed(f"the service did not listen within {seconds:g} seconds")
    raise ServiceFailed(f"the service ended with status {status} before it listened")
