"""Features by name, and when a parameter set asks for one: a parameter that changes nothing asks for nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sampler_kernels.params import LogprobsMode, Method, SamplingParams


@dataclass(frozen=True)
class Feature:
    """One thing that a parameter set may ask for.

    Attributes:
        field: The parameter behind it, by its name on the wire.
        in_use: Whether a set asks for it, given V.
    """

    field: str
    in_use: Callable[[SamplingParams, int], bool]


def _method(method: Method) -> Feature:
    # Temperature 0 makes greedy of the lossless methods.
    return Feature("method", lambda p, _: p.method is method and (method.lossy or p.temperature > 0))


def _mode(mode: LogprobsMode) -> Feature:
    return Feature("logprobs_modes", lambda p, _: mode in p.logprobs_modes)


PROCESSING: dict[str, Feature] = {
    "allowed_token_ids": Feature("allowed_token_ids", lambda p, _: p.allowed_token_ids is not None),
    "allowed_token_ids_by_row": Feature(
        "allowed_token_ids_by_row", lambda p, _: p.allowed_token_ids_by_row is not None
    ),
    "logit_bias": Feature("logit_bias", lambda p, _: len(p.logit_bias) > 0),
    "min_tokens": Feature("min_tokens", lambda p, _: p.min_tokens > 0),
    "repetition_penalty": Feature("repetition_penalty", lambda p, _: p.repetition_penalty != 1),
    "frequency_penalty": Feature("frequency_penalty", lambda p, _: p.frequency_penalty != 0),
    "presence_penalty": Feature("presence_penalty", lambda p, _: p.presence_penalty != 0),
    "bad_words": Feature("bad_words", lambda p, _: len(p.bad_words) > 0),
    # Greedy takes no notice of the three filters.
    "min_p": Feature("min_p", lambda p, _: p.min_p > 0 and p.temperature > 0),
    "top_k": Feature("top_k", lambda p, vocab_size: 0 < p.top_k < vocab_size and p.temperature > 0),
    "top_p": Feature("top_p", lambda p, _: p.top_p < 1 and p.temperature > 0),
}
"""What changes a row before a draft token is held against it, temperature apart."""

FEATURES: dict[str, Feature] = {
    **PROCESSING,
    **{f"method {method.value}": _method(method) for method in Method},
    **{f"logprobs_modes {mode.value}": _mode(mode) for mode in LogprobsMode},
    "stop_token_ids": Feature("stop_token_ids", lambda p, _: len(p.stop_token_ids) > 0),
    "max_tokens": Feature("max_tokens", lambda p, _: p.max_tokens is not None),
    "acceptance_probabilities": Feature("acceptance_probabilities", lambda p, _: p.acceptance_probabilities),
}
"""Every feature that may be built apart from the others."""
