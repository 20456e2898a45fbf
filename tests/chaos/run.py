"""The faults at length: ``make chaos``, or ``python tests/chaos/run.py --help``.

Exit status: 0 nothing found, 1 something found, 2 usage.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

# Run as a file, this one's folder is on the path and the root is not.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.chaos.drain import drain
from tests.chaos.fuzz import fuzz
from tests.chaos.halfopen import halfopen
from tests.chaos.killed import killed
from tests.chaos.report import Report
from tests.chaos.restart import restart
from tests.chaos.slow import slow


@dataclass(frozen=True)
class Fault:
    """One fault test as the command runs it.

    Attributes:
        name: Chosen with ``--only``.
        count: How much of it there is by default; one tick each.
        unit: What is counted.
        run: Does ``count`` of it, with a seed.
    """

    name: str
    count: int
    unit: str
    run: Callable[[Report, Path, int, int], None]


FAULTS = [
    Fault("fuzz", 50_000, "bent messages", lambda report, at, n, seed: fuzz(report, at, calls=n, seed=seed)),
    Fault("killed", 40, "clients killed", lambda report, at, n, seed: killed(report, at, clients=n, seed=seed)),
    Fault("slow", 16, "clients that never read", lambda report, at, n, _: slow(report, at, clients=n)),
    Fault("halfopen", 10, "clients stopped", lambda report, at, n, _: halfopen(report, at, clients=n)),
    Fault("drain", 30, "servers ended under load", lambda report, at, n, seed: drain(report, at, rounds=n, seed=seed)),
    Fault("restart", 15, "servers killed", lambda report, at, n, seed: restart(report, at, kills=n, seed=seed)),
]


@dataclass(frozen=True)
class Row:
    """A fault test that has been run."""

    name: str
    seed: int
    seconds: float
    report: Report


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Do to the service what should not harm it, and watch.")
    names = [fault.name for fault in FAULTS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="FAULT", help=", ".join(names))
    parser.add_argument("--seed", type=int, default=1, help="of the first pass; each further pass takes the next one")
    parser.add_argument("--minutes", type=float, default=0.0, help="pass after pass for so long; default: one pass")
    for fault in FAULTS:
        text = f"{fault.unit}, default {fault.count}"
        parser.add_argument(f"--{fault.name}", type=positive, default=fault.count, metavar="N", help=text)
    return parser.parse_args()


def positive(text: str) -> int:
    """A count of at least one.

    Raises:
        ValueError: It is not; argparse says so.
    """
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def main() -> int:
    given, console = arguments(), Console()
    chosen = [fault for fault in FAULTS if fault.name in given.only]
    until = time.monotonic() + given.minutes * 60
    rows: list[Row] = []
    seed = given.seed
    while True:
        rows += [passed(fault, getattr(given, fault.name), seed, console) for fault in chosen]
        seed += 1
        if time.monotonic() >= until:
            break
    console.print(table(rows))
    found = [(row, finding) for row in rows for finding in dict.fromkeys(row.report.findings)]
    for row, finding in found:
        console.print(f"{row.name}, seed {row.seed}: {finding}", markup=False, highlight=False)
    console.print(f"{len(found)} findings" if found else "nothing found")
    return 1 if found else 0


def passed(fault: Fault, count: int, seed: int, console: Console) -> Row:
    """Run one fault test, with its progress shown."""
    report, started = Report(), time.monotonic()
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, console=console) as progress, tempfile.TemporaryDirectory() as directory:
        bar = progress.add_task(f"{fault.name:<9}{fault.unit}", total=count)
        report.tick = lambda: progress.advance(bar)
        try:
            fault.run(report, Path(directory), count, seed)
        except Exception:  # noqa: BLE001  (one fault test that breaks must not hide what the others find)
            report.findings.append(f"the test itself broke off\n{traceback.format_exc()}")
    return Row(fault.name, seed, time.monotonic() - started, report)


def table(rows: list[Row]) -> Table:
    """What was done, measured and found, a row for each fault test and pass."""
    out = Table("fault", "seed", "seconds", "done", "measured", "findings", title="Faults")
    for row in rows:
        report = row.report
        done = "\n".join(f"{number} {name}" for name, number in report.done.items())
        measured = "\n".join(f"{name}: {text}" for name, text in report.measured.items())
        out.add_row(row.name, str(row.seed), f"{row.seconds:.1f}", done, measured, str(len(report.findings)))
    return out


if __name__ == "__main__":
    sys.exit(main())
