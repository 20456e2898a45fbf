"""A step on its way through the service: checked, then run."""

from __future__ import annotations

from dataclasses import dataclass

from sampler_kernels import Step, StepResult
from sampler_kernels.host import HostColumns


@dataclass(frozen=True, eq=False)
class CheckedStep:
    """A step that passed all checks.

    Attributes:
        step: As it was asked. It still holds the bytes of its message.
        columns: What the checks read out of it.
    """

    step: Step
    columns: HostColumns


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
