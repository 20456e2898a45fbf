"""What is legal and does not run yet. Building a feature means deleting its line here."""

from __future__ import annotations

from sampler_kernels.checks.features import FEATURES
from sampler_kernels.checks.memory import passes_once
from sampler_kernels.checks.refusing import refusal
from sampler_kernels.params import SamplingParams
from sampler_kernels.refusal import Reason, StepRefused
from sampler_kernels.step import Step

NOT_BUILT: dict[str, tuple[str, ...]] = {
    "cpu": (),
    "triton": (),
}
"""Features of a parameter set, by their names in ``FEATURES``, that a backend lacks; any other backend lacks none."""

STEP_FIELDS_NOT_BUILT: dict[str, dict[str, str]] = {
    "cpu": {},
    "triton": {
        "target_logsumexp": "target_logsumexp",
        "draft_logsumexp": "draft_logsumexp",
    },
}
"""Attributes of a step that must be None on a backend, with their names on the wire."""


@passes_once
def check_params_supported(params: SamplingParams, where: tuple[int, str]) -> None:
    """Refuse a parameter set that asks for a feature not built yet.

    Args:
        params: The set.
        where: V, and the name of the backend.

    Raises:
        StepRefused: NOT_IMPLEMENTED, with the field and no request.
    """
    vocab_size, backend = where
    for name in NOT_BUILT.get(backend, ()):
        if FEATURES[name].in_use(params, vocab_size):
            raise _not_built(name, FEATURES[name].field)


def check_step_supported(step: Step, backend: str) -> None:
    """Refuse a step that brings something not built yet on a backend.

    Raises:
        StepRefused: NOT_IMPLEMENTED, with the field.
    """
    for attribute, field in STEP_FIELDS_NOT_BUILT.get(backend, {}).items():
        if getattr(step, attribute) is not None:
            raise _not_built(field, field)


def _not_built(name: str, field: str) -> StepRefused:
    return refusal(Reason.NOT_IMPLEMENTED, f"{name} is not built yet", field=field)
