"""Running step files: every step through a transport, one line of output each."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TextIO

from sampler_client.errors import InvalidStep, SamplerError, Unavailable
from sampler_client.result import StepResult
from sampler_client.step import Step
from sampler_client.stepfile.parse import step_of
from sampler_client.stepfile.reader import read_values
from sampler_client.stepfile.render import render_error, render_result

Transport = Callable[[Step], StepResult]
"""Runs a step, in-process or over the network; raises ``SamplerError`` where there is no result."""


class ExitStatus(enum.IntEnum):
    """How a run ended; of several, the largest counts."""

    ANSWERED = 0
    """Every step has a result; single requests may have failed."""
    REFUSED = 1
    """Some step was malformed or refused."""
    UNREADABLE = 2
    """A file could not be read, or the command line is wrong."""
    UNREACHABLE = 3
    """The service could not be reached; the steps after that were not run."""


def answer(value: object, transport: Transport) -> tuple[str, ExitStatus]:
    """Runs one step.

    Args:
        value: Its JSON value, or the refusal of its text.
        transport: Runs it.

    Returns:
        Its line of output, without the newline, and how it ended.
    """
    try:
        if isinstance(value, InvalidStep):
            raise value
        step = step_of(value)
        return render_result(step, transport(step)), ExitStatus.ANSWERED
    except Unavailable as error:
        return render_error(error), ExitStatus.UNREACHABLE
    except SamplerError as error:
        return render_error(error), ExitStatus.REFUSED


def verify_files(
    paths: Sequence[str], transport: Transport, *, out: TextIO | None = None, err: TextIO | None = None
) -> ExitStatus:
    """Runs all steps of all files in order and prints a line for each.

    Args:
        paths: Files; ``-`` is standard input.
        transport: Runs a step.
        out: Where results go; None: standard output.
        err: Where it is said that a file cannot be read or the service not be reached; None: standard error.

    Returns:
        How it ended, to be the exit status of the command.
    """
    out, err = out or sys.stdout, err or sys.stderr
    worst = ExitStatus.ANSWERED
    for path in paths:
        worst = max(worst, _verify_file(path, transport, out, err))
        if worst is ExitStatus.UNREACHABLE:
            print("the service cannot be reached; steps after this one were not run", file=err)
            break
    return worst


def _verify_file(path: str, transport: Transport, out: TextIO, err: TextIO) -> ExitStatus:
    worst = ExitStatus.ANSWERED
    try:
        for value in _values(path):
            line, status = answer(value, transport)
            print(line, file=out, flush=True)
            worst = max(worst, status)
            if status is ExitStatus.UNREACHABLE:
                break
    except _Unreadable as error:
        print(f"cannot read {path}: {error}", file=err)
        worst = ExitStatus.UNREADABLE
    return worst


class _Unreadable(Exception):
    """A file that cannot be opened or read, in the words of the operating system."""


def _values(path: str) -> Iterator[object]:
    # Only what reading raises is about the file: an error of the output has to reach the command.
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as stream:
            yield from read_values(stream)
    except OSError as error:
        raise _Unreadable(error.strerror or str(error)) from error
