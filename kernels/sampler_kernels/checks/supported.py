"""What is legal and does not run yet. Building a feature means deleting its line here."""

from __future__ import annotations

from sampler_kernels.checks.features import FEATURES
from sampler_kernels.checks.memory import passes_once
from sampler_kernels.checks.refusing import refusal
from sampler_kernels.params import SamplingParams
from sampler_kernels.refusal import Reason, StepRefused
from sampler_kernels.step import Step

NOT_BUILT = (
    "method strict",
    "method block",
    "method synthetic",
    "method typical",
    "method relaxed",
    "allowed_token_ids",
    "allowed_token_ids_by_row",
    "logit_bias",
    "min_tokens",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "bad_words",
    "min_p",
    "top_k",
    "top_p",
    "stop_token_ids",
    "max_tokens",
    "logprobs_modes processed_logprobs",
    "logprobs_modes raw_logits",
    "logprobs_modes processed_logits",
    "acceptance_probabilities",
)
"""Features of a parameter set, by their names in ``FEATURES``."""

STEP_FIELDS_NOT_BUILT = {
    "token_bitmask": "token_bitmask",
    "target_logsumexp": "target_logsumexp",
    "draft_logsumexp": "draft_logsumexp",
}
"""Attributes of a step that must be None, with their names on the wire."""


@passes_once
def check_params_supported(params: SamplingParams, vocab_size: int) -> None:
    """Refuse a parameter set that asks for a feature not built yet.

    Raises:
        StepRefused: NOT_IMPLEMENTED, with the field and no request.
    """
    for name in NOT_BUILT:
        if FEATURES[name].in_use(params, vocab_size):
            raise _not_built(name, FEATURES[name].field)


def check_step_supported(step: Step) -> None:
    """Refuse a step that brings something not built yet.

    Raises:
        StepRefused: NOT_IMPLEMENTED, with the field.
    """
    for attribute, field in STEP_FIELDS_NOT_BUILT.items():
        if getattr(step, attribute) is not None:
            raise _not_built(field, field)


def _not_built(name: str, field: str) -> StepRefused:
    return refusal(Reason.NOT_IMPLEMENTED, f"{name} is not built yet", field=field)
