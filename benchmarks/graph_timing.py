"""Time on a device by CUDA graph replay: no launch from the host lies between the kernels of a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

Run = Callable[[], Any]


def capture(runs: Sequence[Run]) -> list[Run]:
    """Each run as a graph that can be replayed; its kernels are compiled before. Without a GPU the runs as they are."""
    for run in runs:
        run()
    if not torch.cuda.is_available():
        return list(runs)
    torch.cuda.synchronize()
    graphs: list[Run] = []
    pool = torch.cuda.graph_pool_handle()
    for run in runs:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            run()
        graphs.append(graph.replay)
    return graphs


def microseconds(replays: Sequence[Run], *, target_us: float = 20_000, rounds: int = 5) -> float:
    """Median over rounds of the mean time of one replay.

    The replays are taken in turn, so that each finds its inputs out of the cache.
    """
    once = max(1.0, _round(replays, len(replays)))
    count = max(len(replays), int(target_us / once))
    return median(_round(replays, count) for _ in range(rounds))


def _round(replays: Sequence[Run], count: int) -> float:
    if not torch.cuda.is_available():
        started = time.perf_counter()
        for i in range(count):
            replays[i % len(replays)]()
        return (time.perf_counter() - started) * 1e6 / count
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    start.record()
    for i in range(count):
        replays[i % len(replays)]()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / count


@triton.jit  # type: ignore[untyped-decorator]
def _read_kernel(x_ptr: tl.tensor, out_ptr: tl.tensor, block: tl.constexpr) -> None:
    """Reads a block of int32 and keeps its maximum.

    x_ptr: [n] int32. out_ptr: [n / block] int32. The grid walks blocks.
    """
    place = tl.program_id(0).to(tl.int64)
    x = tl.load(x_ptr + place * block + tl.arange(0, block))
    tl.store(out_ptr + place, tl.max(x, axis=0))


def read_bandwidth(num_bytes: int, device: torch.device) -> float:
    """Bytes per microsecond that a kernel reads which does no more; the best of a few shapes."""
    x = torch.ones(num_bytes // 4, dtype=torch.int32, device=device)
    best = 0.0
    for block, warps in ((2048, 4), (4096, 4), (8192, 8), (4096, 8), (8192, 4)):
        out = torch.empty(x.numel() // block, dtype=torch.int32, device=device)

        def run(out: torch.Tensor = out, block: int = block, warps: int = warps) -> None:
            _read_kernel[(out.numel(),)](x, out, block=block, num_warps=warps)

        best = max(best, out.numel() * block * 4 / microseconds(capture([run])))
    return best
