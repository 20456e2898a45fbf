"""The step: which draft tokens stand, what is drawn after them, and what is reported about both."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import perf_counter

import torch

from sampler_kernels.backends import backend as backend_of
from sampler_kernels.checks import checked
from sampler_kernels.collect import collect
from sampler_kernels.host import HostColumns
from sampler_kernels.planning.plan import plan
from sampler_kernels.result import StepResult, Timings
from sampler_kernels.step import Step


def verify(step: Step, *, backend: str = "auto") -> StepResult:
    """Verify the draft tokens of a batch of requests, and emit for each those that stand and one more.

    Equal logits, drafts and parameters with equal seeds give bit-equal results on one backend, whatever else is in
    the batch. Nothing is written to the step's tensors.

    Args:
        step: The batch. Its tensors may lie on the CPU or on the backend's device; they are moved where they must be.
        backend: ``auto``, ``cpu`` or ``triton``.

    Returns:
        Tokens, counts and numbers on the host. A request whose rows hold NaN or +inf, or nothing to draw from, has
        the status INVALID_LOGITS and emits nothing; the others are untouched by it.

    Raises:
        StepRefused: The step breaks a rule, or asks for what is not built yet.
        BackendUnavailable: The backend cannot run here.
    """
    return verify_checked(step, checked(step, backend_of(backend).name), backend=backend)


@torch.inference_mode()
def verify_checked(step: Step, host: HostColumns, *, backend: str = "auto") -> StepResult:
    """:func:`verify` for a caller that has checked the step before, on another thread than the device's.

    Args:
        step: The batch.
        host: What ``checks.checked`` returned for this very step and this backend.
        backend: As for :func:`verify`.

    Raises:
        BackendUnavailable: The backend cannot run here.
    """
    operations = backend_of(backend)
    started = perf_counter()
    planned = plan(step, host, operations.device)
    wishes = planned.wishes
    wants_raw, wants_processed = (bool(wishes.view(raw=raw).any()) for raw in (True, False))
    uploaded = perf_counter()

    batch = replace(planned.batch, target=operations.processors(planned.batch))
    target_stats, draft_stats = operations.all_stats(
        batch.target, planned.target_temperature, batch.draft, planned.draft_temperature, raw=wants_raw
    )
    decision = operations.rejection(batch, target_stats, draft_stats)
    emitted = operations.emit(batch, target_stats, draft_stats, decision)
    cut = None
    if batch.cuts is not None:
        cut = operations.cut(batch, decision, emitted)
        emitted = cut.emitted
    report = partial(
        operations.topk_logprobs,
        batch,
        target_stats,
        top_n=min(int(wishes.top.max()), batch.vocab_size),
        ranks=bool(wishes.ranks.any()),
        chosen_ids=planned.chosen_ids,
    )
    raw = report(torch.where(planned.raw_rows, emitted, -1), raw=True) if wants_raw else None
    processed = report(torch.where(planned.processed_rows, emitted, -1), raw=False) if wants_processed else None
    operations.synchronize()
    computed = perf_counter()

    result = collect(planned, decision, emitted, raw, processed, cut)
    timings = Timings(
        upload_us=(uploaded - started) * 1e6,
        device_us=(computed - uploaded) * 1e6,
        download_us=(perf_counter() - computed) * 1e6,
    )
    return replace(result, backend=operations.name, timings=timings)
