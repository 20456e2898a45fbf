"""A step that ran, on its way from the device thread to the wire."""

from __future__ import annotations

from dataclasses import dataclass

from sampler_kernels import Step, StepResult


@dataclass(frozen=True, eq=False)
class Ran:
    """A step with its result.

    Attributes:
        step: As it was asked.
        result: Of the core.
        arrived: When its message came, on the clock of ``perf_counter``.
        started: When the device thread began with it.
    """

    step: Step
    result: StepResult
    arrived: float
    started: float
