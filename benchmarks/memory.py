"""How much memory a call takes above what was there before it."""

from __future__ import annotations

import json
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from torch.profiler import ProfilerActivity, profile


def peak_bytes(call: Callable[[], object]) -> int:
    """The most bytes that a call holds at one time, above those held when it began.

    Counted, not sampled: torch's allocator reports each allocation to its profiler, and Python and numpy report
    theirs to tracemalloc. The two peaks need not fall together, so their sum is an upper bound. Not seen is what a
    torch operation takes from malloc directly, such as the heap of a topk.

    Args:
        call: Run twice before it is measured, so that caches and lazily loaded code do not count.
    """
    call()
    call()
    return _torch_peak(call) + _python_peak(call)


def _torch_peak(call: Callable[[], object]) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        trace = json.loads(path.read_text())
    steps = [event["args"] for event in trace["traceEvents"] if event["name"] == "[memory]"]
    if not steps:
        return 0
    before = steps[0]["Total Allocated"] - steps[0]["Bytes"]
    return int(max(step["Total Allocated"] for step in steps) - before)


def _python_peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
