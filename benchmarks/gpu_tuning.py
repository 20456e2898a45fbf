"""Each kernel and the step on a GPU, by one graph, for comparing the kernels of two trees on one machine.

    PYTHONPATH=.:kernels python3 -m benchmarks.gpu_tuning NAME

Adds an entry NAME to gpu_tuning.json in $OUT, or in benchmarks/results/; put another tree's ``kernels`` first for what
they took before a change. Needs an NVIDIA GPU.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_cases import Shape, noise_for
from benchmarks.gpu_first import ACCEPTANCE, Prepared, copies, machine, redrawn
from benchmarks.graph_timing import in_one_graph, read_bandwidth
from sampler_kernels.draw.kernel import draw_and_flatten
from sampler_kernels.rejection.kernel import rejection

VOCAB = 128_256


def times(steps: list[Prepared]) -> dict[str, float]:
    """Microseconds of each part and of the step, over steps that outgrow the cache."""
    part = partial
    done = [(one, *one.verify(raw=True)) for one in steps]
    return {
        "stats": in_one_graph([part(one.stats, raw=False) for one in steps]),
        "stats raw": in_one_graph([part(one.stats, raw=True) for one in steps]),
        "rejection": in_one_graph([part(rejection, one.batch, t, d) for one, t, d, _, _ in done]),
        "draw": in_one_graph([part(draw_and_flatten, one.batch, t, d, c) for one, t, d, c, _ in done]),
        "topk": in_one_graph([part(one.topk, t, e) for one, t, _, _, e in done]),
        "verify+draw": in_one_graph([one.verify for one in steps]),
        "with top-20 + ranks": in_one_graph([one.everything for one in steps]),
    }


def measure() -> dict[str, Any]:
    """All cases of the goals."""
    device = torch.device("cuda")
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    bandwidth = read_bandwidth(1 << 31, device) / 1e6
    cases = []
    for kind, acceptance in ACCEPTANCE.items():
        noise = noise_for(kind, acceptance, VOCAB, device)
        for requests, drafts in ((256, 3), (64, 4), (8, 4), (1, 4)):
            shape = Shape(requests, drafts, VOCAB)
            steps = copies(shape, kind, noise, device, cache)
            residual, accepted = redrawn(steps)
            floor = (shape.num_bytes + residual * 2 * shape.row_bytes) / (bandwidth * 1e6)
            case: dict[str, Any] = {"case": str(shape), "logits": kind, "accepted": accepted, "floor_us": floor}
            cases.append(case | {"us": times(steps)})
            print(json.dumps(cases[-1]), flush=True)
            del steps
            torch.cuda.empty_cache()
    return {"machine": machine(device), "bandwidth_tb_s": bandwidth, "cases": cases}


def main() -> None:
    path = Path(os.environ.get("OUT", "benchmarks/results")) / "gpu_tuning.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(found | {sys.argv[1]: measure()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
