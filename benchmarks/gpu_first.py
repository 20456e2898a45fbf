"""The kernels on a GPU: whether they agree with their references at real size, how long they take, what settings do.

    PYTHONPATH=.:kernels:clients/python python3 benchmarks/gpu_first.py

Needs an NVIDIA GPU; ``--smoke`` runs every line of it small and interpreted. Sections fail alone. A JSON file with all
numbers, the card, versions and the date goes to $OUT, or to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

import triton  # type: ignore[import-untyped]
from torch import Tensor

from benchmarks import gpu_features
from benchmarks.gpu_cases import Shape, noise_for, step
from benchmarks.graph_timing import Run, capture, microseconds, read_bandwidth
from sampler_kernels.batch import Batch
from sampler_kernels.draw import kernel as draw_kernel
from sampler_kernels.draw import reference as draw_reference
from sampler_kernels.flatten import reference as flatten_reference
from sampler_kernels.outcome import Decision, DrawKind, RowStats, TopLogits
from sampler_kernels.rejection import kernel as rejection_kernel
from sampler_kernels.rejection import reference as rejection_reference
from sampler_kernels.stats import kernel as stats_kernel
from sampler_kernels.stats import reference as stats_reference
from sampler_kernels.stats.temperatures import draft_temperature, target_temperature
from sampler_kernels.topk_logprobs import kernel as topk_kernel
from sampler_kernels.topk_logprobs import reference as topk_reference

TOP_N = 20
ACCEPTANCE = {"flat": 0.3, "peaked": 0.8}


@dataclass(eq=False)
class Prepared:
    """A batch with what plan would have uploaded for it."""

    batch: Batch
    of_target: Tensor
    of_draft: Tensor

    @staticmethod
    def of(batch: Batch) -> Prepared:
        return Prepared(batch, target_temperature(batch), draft_temperature(batch))

    def stats(self, *, raw: bool) -> tuple[RowStats, RowStats]:
        batch = self.batch
        return stats_kernel.stats_of_both(batch.target, self.of_target, batch.draft, self.of_draft, raw=raw)

    def verify(self, *, raw: bool = False) -> tuple[RowStats, RowStats, Decision, Tensor]:
        """Verification and draw: four launches."""
        target, draft = self.stats(raw=raw)
        decision = rejection_kernel.rejection(self.batch, target, draft)
        _, emitted = draw_kernel.draw_and_flatten(self.batch, target, draft, decision)
        return target, draft, decision, emitted

    def everything(self) -> TopLogits:
        """The same with top logprobs and ranks of every emitted token."""
        target, _, _, emitted = self.verify(raw=True)
        return self.topk(target, emitted)

    def topk(self, target: RowStats, emitted: Tensor) -> TopLogits:
        return topk_kernel.topk_logprobs(
            self.batch, target, emitted, raw=True, top_n=TOP_N, ranks=True, chosen_ids=None
        )


@dataclass(eq=False)
class Report:
    """What was found, as it goes to the file and the table."""

    machine: dict[str, Any]
    bandwidth_tb_s: float = 0.0
    cases: list[dict[str, Any]] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)
    sweep: list[dict[str, Any]] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def section(report: Report, name: str, run: Callable[[], None]) -> None:
    """One section; what it raises is printed whole and does not stop the others."""
    started = time.perf_counter()
    try:
        run()
    except Exception:  # noqa: BLE001  (whatever it is, the other sections are worth having)
        report.failures.append(name)
        print(f"--- {name} FAILED", traceback.format_exc(), sep="\n", flush=True)
    print(f"--- {name}: {time.perf_counter() - started:.1f} s", flush=True)


def machine(device: torch.device) -> dict[str, Any]:
    """Card, versions, date."""
    card = torch.cuda.get_device_name() if device.type == "cuda" else platform.processor()
    driver = ""
    if device.type == "cuda":
        query = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.mem", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "card": card,
        "driver_and_clocks": driver,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def host(value: Any) -> Any:  # noqa: ANN401
    """A dataclass of tensors, or a tensor, on the host."""
    if isinstance(value, Tensor):
        return value.cpu()
    parts = {f.name: getattr(value, f.name) for f in fields(value)}
    return type(value)(**{name: None if part is None else part.cpu() for name, part in parts.items()})


def host_batch(batch: Batch) -> Batch:
    """The batch on the host, for the references."""
    moved = {f.name: getattr(batch, f.name) for f in fields(batch)}
    moved = {name: value.cpu() if isinstance(value, Tensor) else value for name, value in moved.items()}
    for name in ("target", "draft"):
        rows = moved[name]
        moved[name] = type(rows)(tuple(block.cpu() for block in rows.blocks), rows.block, rows.index)
    return Batch(**moved)


def check(report: Report, shape: Shape, kind: str, noise: float, device: torch.device) -> None:
    """Every kernel against its reference, each on the kernel's own inputs."""
    one = Prepared.of(step(shape, kind, noise, 7, device))
    batch = host_batch(one.batch)
    target, draft = one.stats(raw=True)
    same_stats(target, stats_reference.stats(batch.target, one.of_target.cpu(), raw=True))
    same_stats(draft, stats_reference.stats(batch.draft, one.of_draft.cpu(), raw=False))
    decision = rejection_kernel.rejection(one.batch, target, draft)
    same(decision, rejection_reference.rejection(batch, host(target), host(draft)))
    tokens, emitted = draw_kernel.draw_and_flatten(one.batch, target, draft, decision)
    true_tokens = draw_reference.draw(batch, host(target), host(draft), host(decision))
    differ = int((tokens.cpu() != true_tokens).sum())
    assert torch.equal(emitted.cpu(), flatten_reference.flatten(batch, host(decision), tokens.cpu()))
    for n, ranks in ((TOP_N, True), (256, False)):
        wish: dict[str, Any] = {"raw": True, "top_n": n, "ranks": ranks, "chosen_ids": None}
        truth = topk_reference.topk_logprobs(batch, host(target), emitted.cpu(), **wish)
        same(topk_kernel.topk_logprobs(one.batch, target, emitted, **wish), truth, emitted.cpu() >= 0)
    said = (
        f"{shape} V={shape.vocab} {kind}: stats, decision, flatten, top {TOP_N} and 256, ranks agree; {differ} of "
        f"{len(tokens)} draws differ; accepted {decision.num_accepted.float().mean().item():.2f} of {shape.drafts}"
    )
    report.checks.append(said)
    print(said, flush=True)


def same(mine: Decision | TopLogits, truth: Decision | TopLogits, told: Tensor | None = None) -> None:
    """Integers equal, logprobs as near as sums of float32 let them be; only the rows that are ``told``."""
    for f in fields(mine):
        numbers, expected = getattr(mine, f.name), getattr(truth, f.name)
        if expected is None:
            continue
        numbers = numbers.cpu()
        if told is not None:
            numbers, expected = numbers[told], expected[told]
        torch.testing.assert_close(numbers, expected, rtol=0, atol=2e-6, equal_nan=True, msg=named(f.name))


def same_stats(mine: RowStats, truth: RowStats) -> None:
    """Maxima and places equal, sums as near as sums of 4,096 float32 are."""
    for f in fields(RowStats):
        if getattr(truth, f.name) is not None:
            numbers, expected = getattr(mine, f.name).cpu(), getattr(truth, f.name)
            rtol = 2e-6 if "sum" in f.name else 0
            torch.testing.assert_close(numbers, expected, rtol=rtol, atol=0, msg=named(f.name))


def named(name: str) -> Callable[[str], str]:
    """Puts the name of what differs before how it differs."""
    return lambda message: f"{name}: {message}"


def features(report: Report, kind: str, noise: dict[str, float], vocab: int, device: torch.device) -> None:
    """Whole steps with every feature, on the device and on the CPU."""
    rounds = 1 if device.type == "cpu" else 3
    found = gpu_features.compare(vocab, kind, noise[kind], device, rounds)
    said = (
        f"V={vocab} {kind}, all features: {len(found.differ)} of {found.requests} requests differ {found.differ}, "
        f"numbers by at most {found.logprob_error:.1e}"
    )
    report.checks.append(said)
    print(said, flush=True)
    # The contract's bounds. Of flat rows every draw is near a step, so there differences are only counted.
    assert found.logprob_error <= 1e-4, "numbers"
    assert kind == "flat" or len(found.differ) <= 1, "decisions"


def time_features(report: Report, kind: str, noise: dict[str, float], vocab: int, device: torch.device) -> None:
    """What each feature costs where every request asks for it."""
    shape = Shape(2, 2, vocab) if device.type == "cpu" else Shape(64, 4, vocab)
    took = gpu_features.times(shape, kind, noise[kind], device)
    for name, each in took.items():
        ratio = each / took["plain"]
        report.parts.append(
            {"case": str(shape), "logits": kind, "what": f"feature: {name}", "us": each, "ratio": ratio}
        )
        print(f"    {shape} {kind} {name:20s} {each:8.1f} us, {ratio:5.2f} of plain", flush=True)


def copies(shape: Shape, kind: str, noise: float, device: torch.device, cache: int) -> list[Prepared]:
    """As many steps as it takes to outgrow the cache two times over."""
    count = max(2, -(-2 * cache // shape.num_bytes))
    return [Prepared.of(step(shape, kind, noise, seed, device)) for seed in range(count)]


def redrawn(steps: Sequence[Prepared]) -> tuple[float, float]:
    """Requests that redraw, and accepted drafts a request, a step in the mean."""
    decisions = [one.verify()[2] for one in steps]
    residual = torch.stack([(d.draw_kind == int(DrawKind.RESIDUAL)).sum() for d in decisions]).float().mean().item()
    return residual, torch.stack([d.num_accepted.float().mean() for d in decisions]).mean().item()


def operations(steps: Sequence[Prepared]) -> dict[str, list[Run]]:
    """Each operation alone, on what the ones before it left."""
    done = [(one, *one.verify(raw=True)) for one in steps]
    topk = topk_kernel.topk_logprobs
    part = functools.partial
    return {
        "stats": [part(one.stats, raw=False) for one in steps],
        "stats raw": [part(one.stats, raw=True) for one in steps],
        "rejection": [part(rejection_kernel.rejection, one.batch, t, d) for one, t, d, _, _ in done],
        "draw": [part(draw_kernel.draw_and_flatten, one.batch, t, d, c) for one, t, d, c, _ in done],
        "topk": [part(one.topk, t, e) for one, t, _, _, e in done],
        "topk, no ranks": [
            part(topk, one.batch, t, e, raw=True, top_n=TOP_N, ranks=False, chosen_ids=None) for one, t, _, _, e in done
        ],
        "ranks alone": [
            part(topk, one.batch, t, e, raw=True, top_n=0, ranks=True, chosen_ids=None) for one, t, _, _, e in done
        ],
    }


def time_case(report: Report, shape: Shape, kind: str, steps: Sequence[Prepared]) -> None:
    """The step without and with logprobs against its floor, and the operations one by one."""
    residual, accepted = redrawn(steps)
    floor = (shape.num_bytes + residual * 2 * shape.row_bytes) / (report.bandwidth_tb_s * 1e6)
    whole: dict[str, list[Run]] = {
        "verify+draw": [one.verify for one in steps],
        f"with top-{TOP_N} + ranks": [one.everything for one in steps],
    }
    for name, runs in whole.items():
        took = microseconds(capture(runs))
        row = {"case": str(shape), "logits": kind, "what": name, "us": took, "floor_us": floor, "ratio": took / floor}
        report.cases.append(row | {"redrawn": residual, "accepted": accepted, "sets": len(steps)})
        print(f"{shape} {kind} {name}: {took:.1f} us, floor {floor:.1f}, ratio {took / floor:.2f}", flush=True)
    for name, runs in operations(steps).items():
        took = microseconds(capture(runs), rounds=3)
        report.parts.append({"case": str(shape), "logits": kind, "what": name, "us": took})
        print(f"    {name:14s} {took:8.1f} us", flush=True)
    started = time.perf_counter()
    for one in steps:
        one.everything()
    launched = (time.perf_counter() - started) * 1e6 / len(steps)
    report.parts.append({"case": str(shape), "logits": kind, "what": "host, launching eagerly", "us": launched})
    print(f"    host, eagerly  {launched:8.1f} us", flush=True)


def sweep(report: Report, shape: Shape, kind: str, steps: Sequence[Prepared]) -> None:
    """Settings of each kernel, timed alone: warps, registers, tiles a part. None changes a result."""
    runs = operations(steps)
    warps = (1, 2, 4, 8)
    trials: list[tuple[str, Any, dict[str, Any]]] = []
    trials += [(name, stats_kernel, {"_WARPS": w}) for name in ("stats", "stats raw") for w in warps]
    trials += [("rejection", rejection_kernel, {"_WARPS": w}) for w in (2, 4, 8)]
    trials += [("draw", draw_kernel, {"_TILE_WARPS": w}) for w in (2, 4, 8)]
    trials += [("draw", draw_kernel, {"_PICK_WARPS": w}) for w in (2, 4, 8)]
    trials += [("topk", topk_kernel, {"_WARPS": w, "_MAX_REGISTERS": r}) for w in (4, 8) for r in (None, 128, 96)]
    cuts = ((0, 2), (0, 4), (0, 32), (10**9, 1))
    trials += [("topk", topk_kernel, {"_FEW_ROWS": few, "_MANY_TILES": tiles}) for few, tiles in cuts]
    for name, module, settings in trials:
        before = {key: getattr(module, key) for key in settings}
        try:
            for key, value in settings.items():
                setattr(module, key, value)
            took = microseconds(capture(runs[name]), rounds=3)
            report.sweep.append({"case": str(shape), "logits": kind, "what": name, "us": took} | settings)
            print(f"    {shape} {kind} {name:10s} {took:8.1f} us {settings}", flush=True)
        except Exception:  # noqa: BLE001  (a setting that does not compile is a finding)
            print(f"    {shape} {kind} {name} {settings}", traceback.format_exc(), flush=True)
        finally:
            for key, value in before.items():
                setattr(module, key, value)


def tests(report: Report) -> None:
    """The kernels' tests, compiled."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "14", "tests/kernels", "-k", "kernel"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    print(done.stdout[-3000:], done.stderr[-1000:], flush=True)
    report.checks.append("tests: " + (done.stdout.strip().splitlines() or ["no output"])[-1])
    if done.returncode:
        report.failures.append("tests")


def write(report: Report) -> Path:
    """The report as a file; its path."""
    folder = Path(os.environ.get("OUT", "benchmarks/results"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "gpu_first.json"
    path.write_text(json.dumps({f.name: getattr(report, f.name) for f in fields(report)}, indent=1))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="tiny and without a GPU: only to see that every line runs")
    parser.add_argument("--no-sweep", action="store_true")
    parser.add_argument("--no-tests", action="store_true")
    arguments = parser.parse_args()
    device = torch.device("cpu" if arguments.smoke else "cuda")
    vocab, cache = (4200, 0) if arguments.smoke else (128_256, torch.cuda.get_device_properties(0).L2_cache_size)
    sizes = ((1, 2),) if arguments.smoke else ((256, 3), (64, 4), (8, 4), (1, 4))
    report = Report(machine(device))

    def bandwidth() -> None:
        report.bandwidth_tb_s = read_bandwidth(1 << (20 if arguments.smoke else 31), device) / 1e6
        print(f"read bandwidth {report.bandwidth_tb_s:.2f} TB/s", flush=True)

    section(report, "bandwidth", bandwidth)
    noise: dict[str, float] = {}

    def calibrate() -> None:
        for kind, acceptance in ACCEPTANCE.items():
            noise[kind] = noise_for(kind, acceptance, vocab, device)
        print("noise", noise, flush=True)

    section(report, "calibrate", calibrate)
    part = functools.partial

    def checked(shape: Shape, kind: str) -> None:
        check(report, shape, kind, noise[kind], device)

    for kind in ACCEPTANCE:
        shape = Shape(2 if arguments.smoke else 6, 4, vocab)
        section(report, f"check {kind}", part(checked, shape, kind))
    if not arguments.smoke:
        odd = Shape(3, 4, 50_257)  # every second row is not aligned
        section(report, "check odd", part(checked, odd, "flat"))

    def timed(shape: Shape, kind: str) -> None:
        steps = copies(shape, kind, noise[kind], device, cache)
        time_case(report, shape, kind, steps)
        if not arguments.no_sweep and shape.requests in (256, 1) and kind == "flat":
            sweep(report, shape, kind, steps)

    for kind in ACCEPTANCE:
        section(report, f"check features {kind}", part(features, report, kind, noise, vocab, device))
        section(report, f"time features {kind}", part(time_features, report, kind, noise, vocab, device))
    for requests, drafts in sizes:
        for kind in ACCEPTANCE:
            shape = Shape(requests, drafts, vocab)
            section(report, f"time {shape} {kind}", part(timed, shape, kind))
            if device.type == "cuda":
                torch.cuda.empty_cache()
    if not arguments.no_tests and not arguments.smoke:
        section(report, "tests", part(tests, report))
    path = write(report)

    print("\n", json.dumps(report.machine), f"\nread bandwidth {report.bandwidth_tb_s:.2f} TB/s; numbers in {path}")
    for said in report.checks:
        print(said)
    print("case         logits   what                         us    floor  ratio  redrawn accepted")
    for row in report.cases:
        times = f"{row['us']:8.1f} {row['floor_us']:8.1f} {row['ratio']:6.2f}"
        counts = f"{row['redrawn']:8.1f} {row['accepted']:8.2f}"
        print(f"{row['case']:12s} {row['logits']:8s} {row['what']:22s} {times} {counts}")
    print("FAILED: " + ", ".join(report.failures) if report.failures else "all sections ran")


if __name__ == "__main__":
    main()
