"""The full step on a CPU, beside the same step in torch, and the memory floor: how long, and in how much memory.

Temperature 0.7, k = 4, V = 128,256, bf16, draft logits, top-20 logprobs and ranks. What is called is
``sampler_kernels.verify.verify``, checks and host-side result included; the torch versions take their tensors as
they are. Versions take turns, so that whatever else the machine does meets them all alike.

    python benchmarks/cpu_step.py [--turns N] [--out FILE]
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.memory import peak_bytes
from benchmarks.torch_steps import DenseStep, looped, naive, well_written
from sampler_kernels.params import SamplingParams
from sampler_kernels.step import DraftBlock, Step
from sampler_kernels.verify import verify

VOCAB, K, TEMPERATURE, TOP_N = 128_256, 4, 0.7, 20
RESULTS = Path(__file__).parent / "results" / "cpu_step.json"


@dataclass(frozen=True, eq=False)
class Case:
    """One input, told both ways."""

    dense: DenseStep
    step: Step

    @property
    def input_bytes(self) -> int:
        """Of the logits."""
        return sum(t.numel() * t.element_size() for t in (self.dense.target, self.dense.draft))


def make_case(requests: int, noise: float, seed: int) -> Case:
    """Normal target logits, and a draft that strays from them by ``noise``: the more, the fewer tokens stand."""
    generator = torch.Generator().manual_seed(seed)
    target = (torch.randn((requests, K + 1, VOCAB), generator=generator) * 3).bfloat16()
    draft = (target[:, :K].float() + torch.randn((requests, K, VOCAB), generator=generator) * noise).bfloat16()
    law = torch.softmax(draft.float() / TEMPERATURE, -1).flatten(0, 1)
    ids = torch.multinomial(law, 1, generator=generator).view(requests, K)
    return Case(
        DenseStep(target, draft, ids, TEMPERATURE, TOP_N, generator),
        Step(
            target_logits=target.view(-1, VOCAB),
            draft_token_ids=ids.flatten(),
            draft_lengths=[K] * requests,
            draft_blocks=[DraftBlock(draft.view(-1, VOCAB))],
            params=[SamplingParams(temperature=TEMPERATURE, top_logprobs=TOP_N)],
            seeds=[seed * 1000 + r for r in range(requests)],
        ),
    )


def read_once(case: Case) -> int:
    """The floor: nothing but reading the logits, eight bytes at a time."""
    return sum(int(t.view(torch.int64).sum()) for t in (case.dense.target, case.dense.draft))


VERSIONS: Mapping[str, Callable[[Case], object]] = {
    "ours": lambda case: verify(case.step, backend="cpu"),
    "naive": lambda case: naive(case.dense),
    "looped": lambda case: looped(case.dense),
    "well_written": lambda case: well_written(case.dense),
    "read_once": read_once,
}


def measure(requests: int, noise: float, turns: int) -> dict[str, Any]:
    """Times of every version on inputs that change from turn to turn.

    Versions take turns of four calls. The first finds the caches full of another version's data and is kept apart;
    of the other three every one counts.
    """
    cases = [make_case(requests, noise, seed) for seed in range(1 if requests > 1 else 6)]
    accepted = [verify(case.step, backend="cpu").num_accepted.mean() for case in cases]
    first: dict[str, list[float]] = {name: [] for name in VERSIONS}
    later: dict[str, list[float]] = {name: [] for name in VERSIONS}
    for turn in range(turns + 1):
        for name, run in VERSIONS.items():
            times = [_milliseconds(run, cases[turn % len(cases)]) for _ in range(4)]
            if turn:  # the very first turn pays for code that is loaded on first use
                first[name].append(times[0])
                later[name] += times[1:]
    medians = {name: statistics.median(values) for name, values in later.items()}
    longest = cases[int(np.argmax(accepted))]
    return {
        "requests": requests,
        "threads": torch.get_num_threads(),
        "draft_noise": noise,
        "mean_accepted": round(float(np.mean(accepted)), 3),
        "median_ms": _rounded(medians),
        "tenth_percentile_ms": _rounded({name: float(np.quantile(values, 0.1)) for name, values in later.items()}),
        "median_ms_of_first_calls": _rounded({name: statistics.median(values) for name, values in first.items()}),
        "times_faster_than": _rounded(
            {name: medians[name] / medians["ours"] for name in VERSIONS if name not in ("ours", "read_once")}
        ),
        "input_bytes": longest.input_bytes,
        "float32_row_bytes": 4 * VOCAB,
        "peak_bytes": {name: peak_bytes(partial(run, longest)) for name, run in VERSIONS.items()},
    }


def _milliseconds(run: Callable[[Case], object], case: Case) -> float:
    started = time.perf_counter()
    run(case)
    return (time.perf_counter() - started) * 1e3


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cpu": model[0].split(":")[1].strip() if model else platform.processor(),
        "cores": os.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    report: dict[str, Any] = {
        "what": f"Full step, V={VOCAB}, k={K}, bf16, temperature {TEMPERATURE}, draft logits, top-{TOP_N}, ranks",
        "units": "milliseconds a step; peak_bytes above the inputs, an upper bound",
        "date": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "results": [],
    }
    for threads in sorted({1, os.cpu_count() or 1}):
        torch.set_num_threads(threads)
        for requests in (1, 8):
            # A draft that strays, and the dearest step there is, in which every draft token stands.
            for noise in (0.5, 0.0):
                row = measure(requests, noise, args.turns)
                report["results"].append(row)
                sys.stdout.write(json.dumps(row) + "\n")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
