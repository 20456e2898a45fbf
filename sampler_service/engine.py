"""The core as the service runs it: one backend, chosen once, warmed before the first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from sampler_kernels import DraftBlock, SamplingParams, Step, StepResult
from sampler_kernels.backends import backend as backend_of
from sampler_kernels.checks import checked
from sampler_kernels.verify import verify_checked
from sampler_service.steps import CheckedStep

_WARM_VOCAB: Final = 256


@dataclass(frozen=True)
class Engine:
    """Runs steps on one backend. Only the worker's thread may call :meth:`run` and :meth:`warm`.

    Attributes:
        backend: ``cpu`` or ``triton``.
        device: Where it runs.
    """

    backend: str
    device: torch.device

    @classmethod
    def of(cls, name: str) -> Engine:
        """The engine of a backend's name; ``auto`` picks the best one here.

        Raises:
            BackendUnavailable: With what is missing.
        """
        chosen = backend_of(name)
        return cls(chosen.name, chosen.device)

    def run(self, checked: CheckedStep) -> StepResult:
        """Verify one step."""
        return verify_checked(checked.step, checked.columns, backend=self.backend)

    def warm(self) -> None:
        """Run a small step of each dtype, so that no client's first step pays for loading and compiling."""
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            step = Step(
                target_logits=torch.zeros(4, _WARM_VOCAB, dtype=dtype),
                draft_token_ids=torch.tensor([0, 1], dtype=torch.int32),
                draft_lengths=[2, 0],
                draft_blocks=[DraftBlock(torch.zeros(2, _WARM_VOCAB, dtype=dtype))],
                params=[SamplingParams(top_logprobs=1)],
                seeds=[0, 0],
                positions=[0, 0],
            )
            self.run(CheckedStep(step, checked(step, self.backend)))
