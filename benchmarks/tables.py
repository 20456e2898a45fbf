"""The tables of docs/performance.md from the data in ``results/``: printed, to be pasted; a test compares them.

python -m benchmarks.tables
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).parent / "results"


def load(name: str) -> dict[str, Any]:
    """One file of results."""
    loaded: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def markdown(header: str, rows: Iterable[Iterable[object]]) -> str:
    """A table: the first column to the left, numbers to the right."""
    lines = [header, "|" + "|".join("---" if i == 0 else "---:" for i in range(header.count("|") - 1)) + "|"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def service_times() -> str:
    """Service against echo, every case."""
    rows = []
    for case in load("service")["cases"]:
        one, quiet = case["compared"], case["compared"]["quiet"]
        times = (f"{one[key]:,.0f}" for key in ("service_us", "echo_us"))
        rates = f"{case['service']['steps_per_second']:,.0f}", f"{one['rate_ratio']:.2f}"
        rows.append([case["name"], *times, f"{one['ratio']:.2f}", f"{quiet['ratio']:.2f}", *rates])
    return markdown("| case | service us | echo us | ratio | quiet ratio | steps/s | of the echo's rate |", rows)


def breakdowns() -> str:
    """Where the time of a call goes, in the cases of one stream that wait for nothing."""
    parts = ("queue", "upload", "device", "download", "answer", "overhead")
    rows = []
    for case in load("service")["cases"]:
        if case["load"]["concurrency"] == 1 and not case["load"]["pause"]:
            figures = case["service"]["breakdown_us"]
            rows.append([case["name"], *(f"{figures[part]['p50']:,.0f}" for part in parts)])
    return markdown(f"| case | {' | '.join(parts)} |", rows)


def message_costs() -> str:
    """What messages cost, part by part."""
    entries = load("service")["messages"]
    parts = list(entries[0]["median_us"])
    rows = []
    for entry in entries:
        figures = [entry["median_us"][part] for part in parts]
        figures += [entry["sum_us"], entry["quiet_sum_us"], entry["entry_by_entry_us"]]
        rows.append([f"B={entry['batch']}", *(f"{value:,.0f}" for value in figures)])
    return markdown(f"| | {' | '.join(parts)} | sum | quiet sum | read entry by entry |", rows)


def cpu_steps() -> str:
    """The step on a CPU beside torch."""
    others = ("ours", "well_written", "looped", "naive")
    rows = []
    for row in load("cpu_step")["results"]:
        times = (f"{row['tenth_percentile_ms'][name]:.1f}" for name in others)
        memory = (f"{row['peak_bytes'][name] / 1e6:.1f}" for name in ("ours", "well_written"))
        case, accepted = f"B={row['requests']}, {row['threads']} threads", f"{row['mean_accepted']:.1f} of 4"
        rows.append([case, accepted, *times, f"{row['median_ms']['ours']:.1f}", *memory])
    header = (
        "| case | accepted | ours | well-written torch | looped | naive | ours, median | MB, ours | MB, well-written |"
    )
    return markdown(header, rows)


def gpu_cases() -> str:
    """The kernels on a GPU against the memory floor."""
    rows = [
        [case["case"], case["logits"], case["what"], *(f"{case[key]:.1f}" for key in ("us", "floor_us", "ratio"))]
        for case in load("gpu_first")["cases"]
    ]
    return markdown("| case | logits | what | us | floor us | ratio |", rows)


def gpu_parts() -> str:
    """Each operation on a GPU alone, and what the host takes to launch them."""
    parts = load("gpu_first")["parts"]
    names = list(dict.fromkeys(part["what"] for part in parts))
    found = {(part["case"], part["logits"], part["what"]): part["us"] for part in parts}
    cases = list(dict.fromkeys((part["case"], part["logits"]) for part in parts))
    rows = [[f"{case}, {kind}", *(f"{found[case, kind, name]:.0f}" for name in names)] for case, kind in cases]
    return markdown(f"| us | {' | '.join(names)} |", rows)


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    table.__name__: table for table in (service_times, breakdowns, message_costs, cpu_steps, gpu_cases, gpu_parts)
}


if __name__ == "__main__":
    for name, table in TABLES.items():
        print(f"{name}\n\n{table()}\n")
