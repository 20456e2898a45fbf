"""The report for people: tables on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from sampler_loadtest.summary import PERCENTILES


def show(report: dict[str, Any], console: Console) -> None:
    """Prints what :meth:`~sampler_loadtest.loadtest.LoadTest.run` returned."""
    load, server = report["load"], report["server"]
    console.print(
        f"{load['transport']}, {load['concurrency']} at a time; B={load['batch']} k={load['drafts']} "
        f"V={load['vocab_size']} {load['dtype']} {load['method']}; {load['message_bytes']:,} bytes up, "
        f"{load['answer_bytes']:,} down; server {server['version']} ({server['backend']} on {server['device']})",
        highlight=False,
    )
    console.print(_figures(report))
    service = report["service"]
    if "breakdown_us" in service:
        console.print(_breakdown(service["breakdown_us"]))
    if "histogram" in service:
        console.print(_histogram(service["histogram"]))
    for side in ("service", "echo"):
        for code, message in report.get(side, {}).get("errors", {}).items():
            console.print(f"first {code} of the {side}: {message}", markup=False)
    if report.get("compared"):
        ratio = report["compared"]
        console.print(
            f"without the device's time a call takes {_against(ratio)} the floor, at {ratio['rate_ratio']:.2f} of its "
            f"rate (medians of {len(ratio['ratio_of_turns'])} turns; tenth percentiles: {_against(ratio['quiet'])})",
            soft_wrap=True,
            highlight=False,
        )


def _against(ratio: dict[str, Any]) -> str:
    return f"{ratio['service_us']:.0f} us, the echo {ratio['echo_us']:.0f} us: {ratio['ratio']:.2f} times"


def _figures(report: dict[str, Any]) -> Table:
    sides = [side for side in ("service", "echo") if side in report]
    table = Table("", *sides)
    for column in table.columns[1:]:
        column.justify = "right"
    rows = {
        "steps": "steps",
        "steps/s": "steps_per_second",
        "requests/s": "requests_per_second",
        "tokens/s": "tokens_per_second",
        "tokens a request": "tokens_per_request",
        "requests that failed": "failed_requests",
    }
    for title, key in rows.items():
        if key in report["service"]:
            table.add_row(title, *(f"{report[side][key]:,}" if key in report[side] else "" for side in sides))
    for code in sorted({code for side in sides for code in report[side]["status_codes"]}):
        table.add_row(f"status {code}", *(f"{report[side]['status_codes'].get(code, 0):,}" for side in sides))
    _add_spread(table, report, sides)
    return table


def _add_spread(table: Table, report: dict[str, Any], sides: Sequence[str]) -> None:
    table.add_section()
    names = ["average", "fastest", "slowest", *(f"p{percent:g}" for percent in PERCENTILES)]
    for name in names:
        values = (report[side].get("latency_us", {}).get(name) for side in sides)
        table.add_row(f"{name}, us", *("" if value is None else f"{value:,.0f}" for value in values))


def _breakdown(parts: dict[str, dict[str, float]]) -> Table:
    table = Table("where the time goes, us", "average", "p50")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, figures in parts.items():
        table.add_row(name, f"{figures['average']:,.0f}", f"{figures['p50']:,.0f}")
    return table


def _histogram(bins: list[dict[str, float]]) -> Table:
    table = Table("up to, us", "steps", "")
    table.columns[0].justify = table.columns[1].justify = "right"
    most = max(entry["count"] for entry in bins)
    for entry in bins:
        table.add_row(f"{entry['up_to_us']:,.0f}", f"{entry['count']:,.0f}", Bar(most, 0, entry["count"], width=40))
    return table
