"""Figures against values worked out by hand."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from sampler_loadtest.samples import Phase, Sample
from sampler_loadtest.summary import PERCENTILES, compared, histogram, spread, summary


def phase(latencies: list[float], device: float = math.nan, seconds: float = 2.0) -> Phase:
    samples = [Sample(us, 0.0, 6, 0, 1.0, 2.0, device, 3.0, 8.0 + device) for us in latencies]
    return Phase.of(samples, Counter(OK=len(samples)), seconds, {})


def test_percentiles_are_values_that_occurred() -> None:
    values = np.arange(1.0, 1001.0)
    figures = spread(np.random.default_rng(0).permutation(values))
    assert (figures["average"], figures["fastest"], figures["slowest"]) == (500.5, 1.0, 1000.0)
    # The smallest value that is not below so many percent of the others: 0.999 * 999 is 998.001.
    assert [figures[f"p{percent:g}"] for percent in PERCENTILES] == [101, 251, 501, 751, 901, 951, 991, 1000]


@pytest.mark.parametrize("values", [[5.0], [5.0, 5.0], [0.0, 1.0], [1.0, 1e6, 3.0], [100.0, 250.0, 900.0]])
def test_histogram_holds_every_value(values: list[float]) -> None:
    bins = histogram(np.array(values))
    assert sum(entry["count"] for entry in bins) == len(values)
    edges = [entry["up_to_us"] for entry in bins]
    assert edges == sorted(edges)


def test_rates_and_breakdown() -> None:
    figures = summary(phase([100.0, 200.0, 300.0, 400.0], device=50.0), batch=3)
    assert (figures["steps"], figures["steps_per_second"], figures["requests_per_second"]) == (4, 2.0, 6.0)
    assert (figures["tokens_per_second"], figures["tokens_per_request"]) == (12.0, 2.0)
    means = {name: part["average"] for name, part in figures["breakdown_us"].items()}
    assert means == {"queue": 1, "upload": 2, "device": 50, "download": 3, "answer": 2, "overhead": 192}
    assert sum(means.values()) == figures["latency_us"]["average"]
    assert figures["service_us"]["average"] == 200.0


def test_the_echo_has_no_breakdown() -> None:
    figures = summary(phase([100.0, 200.0]), batch=1)
    assert "breakdown_us" not in figures
    assert figures["service_us"] == figures["latency_us"]


def test_a_phase_without_answers_has_no_latencies() -> None:
    figures = summary(Phase.of([], Counter(UNAVAILABLE=3), 1.0, {"UNAVAILABLE": "why"}), batch=1)
    assert figures == {
        "steps": 3,
        "seconds": 1.0,
        "status_codes": {"UNAVAILABLE": 3},
        "errors": {"UNAVAILABLE": "why"},
    }


def test_the_ratio_is_the_median_over_turns_of_medians() -> None:
    service = [phase([150.0] + [250.0] * 9, device=50.0), phase([150.0] * 3, device=50.0), phase([9e9] * 3, device=0.0)]
    echo = [phase([100.0] * 3, seconds=1.0)] * 3
    figures = compared(service, echo)
    # Turn by turn 200, 100 and 9e9 against 100; the bad turn does not decide.
    assert (figures["service_us"], figures["echo_us"], figures["ratio"]) == (200.0, 100.0, 2.0)
    assert figures["rate_ratio"] == 0.5
    # Tenth percentile of the first turn: nine tenths of the way from its first value to its second.
    assert figures["quiet"]["ratio_of_turns"][:2] == [1.9, 1.0]
