"""The service against the floor of its transport, and what its messages cost; through the load test, case by case.

    python -m benchmarks.service [--seconds S] [--out FILE]

The server runs the CPU backend with one thread on a unix socket. Beside the real one stands one that does all but the
step (``canned_service``). Service and echo take turns in every case; a figure is the median over the turns.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks import messages
from sampler_loadtest.loadtest import LoadTest, machine
from sampler_loadtest.runner import Extent
from sampler_loadtest.workload import Workload

RESULTS: Final = Path(__file__).parent / "results" / "service.json"
SERVERS: Final = {
    "cpu": ["-m", "sampler_service", "serve", "--backend", "cpu", "--threads", "1", "--listen"],
    "canned": ["-m", "benchmarks.canned_service"],
}
SMALL, FULL = 256, 128_256
ENGINE_PAUSE: Final = 0.005
"""Seconds between steps: an engine's forward pass at its shortest. What a step finds in the caches depends on it."""


@dataclass(frozen=True)
class Case:
    """One load."""

    server: str
    batch: int
    vocab_size: int
    concurrency: int = 1
    pause: float = 0.0
    stream: bool = True

    @property
    def name(self) -> str:
        """In a table."""
        how = f"{self.concurrency} streams" if self.concurrency > 1 else "stream" if self.stream else "unary"
        return f"{self.server} B={self.batch} V={self.vocab_size} {how}" + ", engine's pace" * bool(self.pause)

    def run(self, address: str, seconds: float) -> dict[str, Any]:
        """The load test's report, without what all cases share."""
        test = LoadTest(
            address=address,
            workload=Workload(batch=self.batch, vocab_size=self.vocab_size),
            stream=self.stream,
            concurrency=self.concurrency,
            extent=Extent(seconds=seconds, pause=self.pause),
            turns=6,
            warmup=10,
        )
        report = test.run()
        loads = {name: value for name, value in report["machine"].items() if name.startswith("load_")}
        kept = {name: report[name] for name in ("load", "service", "echo", "compared")}
        return {"name": self.name, "server": self.server, **loads, **kept}


def cases() -> list[Case]:
    """Those of the goals, each with the real step and without it, and a few that explain them."""
    goals = [Case(server, batch, vocab) for server in SERVERS for batch in (1, 8) for vocab in (SMALL, FULL)]
    paced = [Case(server, 1, vocab, pause=ENGINE_PAUSE) for server in SERVERS for vocab in (SMALL, FULL)]
    streams = [Case(server, 1, vocab, concurrency=8) for server in SERVERS for vocab in (SMALL, FULL)]
    return [*goals, *paced, *streams, Case("cpu", 1, SMALL, stream=False)]


@contextmanager
def server(kind: str) -> Iterator[str]:
    """A server of a kind, for as long as it is needed; its address."""
    with tempfile.TemporaryDirectory(prefix="sampler-bench-") as folder:
        address = f"unix:{folder}/s"
        process = subprocess.Popen(
            [sys.executable, *SERVERS[kind], address], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        with process:
            try:
                line = process.stdout.readline() if process.stdout else ""
                if not line.startswith("listening on "):
                    raise RuntimeError(f"the {kind} server did not start")
                yield address
            finally:
                process.terminate()


def measure(seconds: float) -> dict[str, Any]:
    """All cases and all messages."""
    report: dict[str, Any] = {
        "what": "service time (a call less the step's device time) against an echo of the same messages; k=4, "
        "bfloat16, temperature 0.7, draft logits, one stream unless said; CPU backend, one thread",
        "units": "microseconds",
        "date": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "messages": [messages.measure(batch) for batch in (1, 8, 64)],
        "cases": [],
    }
    for kind in SERVERS:
        with server(kind) as address:
            for case in cases():
                if case.server == kind:
                    report["cases"].append(case.run(address, seconds))
                    print(f"{case.name}: {report['cases'][-1]['compared']}", file=sys.stderr)
    return report


def show(report: dict[str, Any], console: Console) -> None:
    """Prints the report as tables."""
    table = Table("service against echo", "service us", "echo us", "ratio", "quiet ratio", "steps/s", "rate ratio")
    for case in report["cases"]:
        figures = case["compared"]
        table.add_row(
            case["name"],
            f"{figures['service_us']:,.0f}",
            f"{figures['echo_us']:,.0f}",
            f"{figures['ratio']:.2f}",
            f"{figures['quiet']['ratio']:.2f}",
            f"{case['service']['steps_per_second']:,.0f}",
            f"{figures['rate_ratio']:.2f}",
        )
    console.print(table)
    parts = list(report["messages"][0]["median_us"])
    table = Table("messages, top-20, us", *parts, "sum", "quiet sum", "entry by entry")
    for entry in report["messages"]:
        times = [*entry["median_us"].values(), entry["sum_us"], entry["quiet_sum_us"], entry["entry_by_entry_us"]]
        table.add_row(f"B={entry['batch']}", *(f"{value:,.0f}" for value in times))
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=6.0, help="for each side of a case (default: %(default)g)")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    report = measure(options.seconds)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    show(report, Console())


if __name__ == "__main__":
    main()
