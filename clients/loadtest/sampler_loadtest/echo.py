"""The echo server as a process of its own, for as long as it is needed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_END_SECONDS: Final = 10.0


@contextmanager
def echo_server(answer_bytes: int, *, unix: bool) -> Iterator[str]:
    """Starts an echo server that answers ``answer_bytes`` bytes to everything; gives its address.

    Args:
        answer_bytes: Size of each answer.
        unix: Whether it listens on a unix socket, in a directory of its own; else on a free port of 127.0.0.1.

    Raises:
        RuntimeError: It did not start.
    """
    with tempfile.TemporaryDirectory(prefix="sampler-echo-") as folder:
        address = f"unix:{folder}/echo.sock" if unix else "127.0.0.1:0"
        program = Path(__file__).with_name("echo_server.py")
        process = subprocess.Popen(
            [sys.executable, str(program), address, str(answer_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # Leaving the block closes its standard input, on which it ends by itself, and waits for that.
        with process:
            try:
                line = process.stdout.readline() if process.stdout else ""
                if not line.startswith("listening on "):
                    raise RuntimeError(f"the echo server did not start: {program} ended with {process.poll()}")
                yield line.removeprefix("listening on ").rstrip("\n")
            finally:
                if process.stdin:
                    process.stdin.close()
                try:
                    process.wait(_END_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
