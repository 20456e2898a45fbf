"""How a fault gets into the CPU backend: where operations meet, so that rewriting one of them does not unplant it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.backends import Backend
from sampler_kernels.batch import Batch
from sampler_kernels.outcome import Decision
from sampler_kernels.philox.reference import Purpose
from sampler_kernels.philox.reference import uniform as true_uniform
from sampler_kernels.planning.plan import Plan

Bits = NDArray[np.int64]
Uniform = Callable[[Bits, Bits, Purpose, Bits | int], NDArray[np.float64]]
Plant = Callable[[pytest.MonkeyPatch], None]


_DRAWS_UNIFORMS = {"rejection": "sampler_kernels.rejection.waves", "draw": "sampler_kernels.draw.reference"}
"""The module in which each operation asks for its uniforms."""


def in_uniforms(fault: Uniform, *operations: str) -> Plant:
    """The uniforms of these operations come from ``fault``."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for operation in operations:
            patch.setattr(import_module(_DRAWS_UNIFORMS[operation]), "uniform", fault)

    return plant


def in_plan(fault: Callable[[Plan], Plan]) -> Plant:
    """The step is planned rightly, then changed by ``fault``."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        module = import_module("sampler_kernels.verify")
        right = module.plan
        patch.setattr(module, "plan", lambda *args: fault(right(*args)))

    return plant


def in_backend(fault: Callable[[Backend], Backend]) -> Plant:
    """Some operations of the CPU backend are exchanged."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        loaders = import_module("sampler_kernels.backends")._LOADERS
        right = loaders["cpu"]
        patch.setitem(loaders, "cpu", lambda: fault(right()))

    return plant


def in_draw(fault: Callable[[Batch, Decision], tuple[Batch, Decision]]) -> Plant:
    """The draw is told something else about the step or the decision."""

    def exchanged(backend: Backend) -> Backend:
        def draw(batch: Batch, target_stats: Any, draft_stats: Any, decision: Decision) -> Tensor:  # noqa: ANN401
            batch, decision = fault(batch, decision)
            return backend.draw(batch, target_stats, draft_stats, decision)

        return replace(backend, draw=draw)

    return in_backend(exchanged)


def both(first: Plant, second: Plant) -> Plant:
    """One fault that shows in two places."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        first(patch)
        second(patch)

    return plant


def with_counter(
    *, seed_mask: int = -1, position_mask: int = -1, purpose: Purpose | None = None, keeps_s: bool = True
) -> Uniform:
    """A uniform with something left out of its counter or key, or with another purpose."""

    def uniform(seed: Bits, position: Bits, right: Purpose, s: Bits | int) -> NDArray[np.float64]:
        other = right if purpose is None else purpose
        return true_uniform(seed & seed_mask, position & position_mask, other, s if keeps_s else 0)

    return uniform
