"""Figures of a phase, and of the service against the echo."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sampler_loadtest.samples import Phase

PERCENTILES: Final = (10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
_BINS: Final = 12
_BREAKDOWN: Final = ("queue_us", "upload_us", "device_us", "download_us")


def summary(phase: Phase, batch: int) -> dict[str, Any]:
    """The figures of a phase, ready for JSON. Latencies are those of answered calls, in microseconds.

    Args:
        phase: Any number of turns as one.
        batch: Requests in a step.
    """
    figures: dict[str, Any] = {
        "steps": phase.codes.total(),
        "seconds": round(phase.seconds, 6),
        "status_codes": dict(sorted(phase.codes.items())),
    }
    if phase.errors:
        figures["errors"] = phase.errors
    if not len(phase):
        return figures
    latency = phase.column("latency_us")
    figures |= {
        "steps_per_second": _rate(len(phase), phase.seconds),
        "requests_per_second": _rate(len(phase) * batch, phase.seconds),
        "latency_us": spread(latency),
        "histogram": histogram(latency),
    }
    if not np.isnan(phase.column("server_us")).any():
        figures |= {
            "tokens_per_second": _rate(float(phase.column("tokens").sum()), phase.seconds),
            "tokens_per_request": round(float(phase.column("tokens").mean()) / batch, 3),
            "failed_requests": int(phase.column("failed").sum()),
            "breakdown_us": breakdown(phase),
        }
    figures["service_us"] = spread(phase.service_us)
    if phase.column("late_us").any():
        figures["late_us"] = spread(phase.column("late_us"))
    return figures


def spread(values: NDArray[np.float64]) -> dict[str, float]:
    """Mean, extremes and percentiles; a percentile is a value that occurred, never one between two."""
    percentiles = np.percentile(values, PERCENTILES, method="higher")
    return {
        "average": _short(values.mean()),
        "fastest": _short(values.min()),
        "slowest": _short(values.max()),
        **{f"p{percent:g}": _short(value) for percent, value in zip(PERCENTILES, percentiles, strict=True)},
    }


def histogram(values: NDArray[np.float64]) -> list[dict[str, float]]:
    """Counts between marks that grow by a constant factor: latencies spread over orders of magnitude."""
    low, high = float(values.min()), float(values.max())
    # Equal values have no width to divide; rounding must not leave the largest outside.
    edges = np.geomspace(max(low, 1e-3), max(high, low * 1.001, 2e-3) * (1 + 1e-9), _BINS + 1)
    edges[0] = min(edges[0], low)
    counts, _ = np.histogram(values, edges)
    return [{"up_to_us": _short(edge), "count": int(count)} for edge, count in zip(edges[1:], counts, strict=True)]


def breakdown(phase: Phase) -> dict[str, dict[str, float]]:
    """Where the time of a call goes: mean and median of each part. Means add up to the time of the call.

    ``queue`` is from the message's arrival to its start on the device thread, reading the message included;
    ``answer`` is what else the server says it took, to write the answer; ``overhead`` is what the server does not see:
    the client and the transport.
    """
    parts = {name.removesuffix("_us"): phase.column(name) for name in _BREAKDOWN}
    server = phase.column("server_us")
    parts["answer"] = server - np.sum(list(parts.values()), axis=0)
    parts["overhead"] = phase.column("latency_us") - phase.column("late_us") - server
    return {
        name: {"average": _short(values.mean()), "p50": _short(np.median(values))} for name, values in parts.items()
    }


def compared(service: Sequence[Phase], echo: Sequence[Phase]) -> dict[str, Any]:
    """The service against the echo, turn by turn: medians over turns, so that one bad moment does not decide.

    A turn's ``service_us`` is the median over its calls of the time less the device's; ``ratio`` divides it by the
    echo's median. ``quiet`` is the same with the tenth percentiles of a turn in place of its medians: on a machine
    with other work, nearer to what it does when left alone.
    """
    pairs = [pair for pair in zip(service, echo, strict=True) if all(len(phase) for phase in pair)]
    if not pairs:
        return {}
    rates = [(len(one) / one.seconds) / (len(other) / other.seconds) for one, other in pairs]
    return {
        **_ratio(pairs, 50.0),
        "rate_ratio": round(statistics.median(rates), 3),
        "rate_ratio_of_turns": [round(value, 3) for value in rates],
        "quiet": _ratio(pairs, 10.0),
    }


def _ratio(pairs: Sequence[tuple[Phase, Phase]], percent: float) -> dict[str, Any]:
    ours = [float(np.percentile(one.service_us, percent)) for one, _ in pairs]
    floor = [float(np.percentile(one.service_us, percent)) for _, one in pairs]
    ratios = [mine / least for mine, least in zip(ours, floor, strict=True)]
    return {
        "service_us": _short(statistics.median(ours)),
        "echo_us": _short(statistics.median(floor)),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_of_turns": [round(value, 3) for value in ratios],
    }


def _rate(count: float, seconds: float) -> float:
    return round(count / seconds, 2) if seconds > 0 else 0.0


def _short(value: float | np.floating[Any]) -> float:
    return round(float(value), 1)
