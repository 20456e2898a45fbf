"""Ranges of sampling parameters: one set at a time, whatever of it is built, whoever uses it."""

from __future__ import annotations

import math
from collections.abc import Callable

from sampler_kernels.checks.ids import check_parameter_ids
from sampler_kernels.checks.memory import passes_once
from sampler_kernels.checks.refusing import outside, refusal
from sampler_kernels.layout import MAX_TOP_LOGPROBS
from sampler_kernels.params import LogprobsMode, Method, SamplingParams
from sampler_kernels.refusal import Reason

_MIN_TEMPERATURE = 1e-5
_MAX_FLOAT32 = 3.4028234663852886e38
_MIN_FLOAT32 = 1.401298464324817e-45


def _is_temperature(value: float) -> bool:
    return value == 0 or (value >= _MIN_TEMPERATURE and math.isfinite(value))


def _is_float32(value: float) -> bool:
    """Whether the value stays finite in float32, in which biases and penalties are applied."""
    return -_MAX_FLOAT32 <= value <= _MAX_FLOAT32


# Each range is written as what is legal, because NaN compares false with everything and so is refused by itself.
_RANGES: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    ("temperature", _is_temperature, "0 or in [1e-5, inf)"),
    ("draft_temperature", _is_temperature, "0 or in [1e-5, inf)"),
    ("top_k", lambda x: x >= 0, "at least 0"),
    ("top_p", lambda x: 0 < x <= 1, "in (0, 1]"),
    ("min_p", lambda x: 0 <= x <= 1, "in [0, 1]"),
    ("min_tokens", lambda x: x >= 0, "at least 0"),
    ("max_tokens", lambda x: x >= 1, "at least 1"),
    ("repetition_penalty", lambda x: _MIN_FLOAT32 <= x <= _MAX_FLOAT32, "above 0 and finite in float32"),
    ("frequency_penalty", _is_float32, "finite in float32"),
    ("presence_penalty", _is_float32, "finite in float32"),
    ("typical_epsilon", lambda x: 0 < x <= 1, "in (0, 1]"),
    ("typical_delta", lambda x: 0 < x <= 1, "in (0, 1]"),
    ("relaxed_top_n", lambda x: x >= 1, "at least 1"),
    ("relaxed_margin", lambda x: x >= 0, "at least 0"),
    ("top_logprobs", lambda x: 0 <= x <= MAX_TOP_LOGPROBS, f"in [0, {MAX_TOP_LOGPROBS}]"),
)

_REQUIRED: dict[Method, tuple[str, ...]] = {
    Method.RELAXED: ("relaxed_top_n", "relaxed_margin"),
}


@passes_once
def check_ranges(params: SamplingParams, vocab_size: int) -> None:
    """Refuse a parameter set that is out of range or contradicts itself, for a vocabulary of ``vocab_size`` ids.

    Raises:
        StepRefused: PARAMETER_OUT_OF_RANGE, PARAMETER_REQUIRED, PARAMETER_CONFLICT or TOKEN_ID_OUT_OF_RANGE, with the
            field and no request.
    """
    for field, is_legal, legal in _RANGES:
        value = getattr(params, field)
        if value is not None and not is_legal(value):
            raise outside(field, value, legal)
    _check_choices(params)
    _check_entries(params)
    _check_lists(params)
    check_parameter_ids(params, vocab_size)


def _check_choices(params: SamplingParams) -> None:
    if not isinstance(params.method, Method):
        raise outside("method", params.method, "one of " + ", ".join(Method))
    for mode in params.logprobs_modes:
        if not isinstance(mode, LogprobsMode):
            raise outside("logprobs_modes", mode, "one of " + ", ".join(LogprobsMode), part=" entry")
    for field in _REQUIRED.get(params.method, ()):
        if getattr(params, field) is None:
            what = f"method {params.method.value} requires {field}, which is not given"
            raise refusal(Reason.PARAMETER_REQUIRED, what, field=field)


def _check_entries(params: SamplingParams) -> None:
    for i, rate in enumerate(() if params.synthetic_rates is None else params.synthetic_rates):
        if not 0 <= rate <= 1:
            raise outside("synthetic_rates", rate, "in [0, 1]", part=f"[{i}]")
    for token_id, bias in params.logit_bias.items():
        if not _is_float32(bias):
            raise outside("logit_bias", bias, "finite in float32", part=f"[{token_id}]")


def _check_lists(params: SamplingParams) -> None:
    allowed, by_row = params.allowed_token_ids, params.allowed_token_ids_by_row
    if allowed is not None and by_row is not None:
        what = "allowed_token_ids and allowed_token_ids_by_row are both given; at most one may be"
        raise refusal(Reason.PARAMETER_CONFLICT, what, field="allowed_token_ids")
    if allowed is not None and len(allowed) == 0:
        raise outside("allowed_token_ids", [], "absent or a list of at least one id")
    for field, lists in (("allowed_token_ids_by_row", by_row or ()), ("bad_words", params.bad_words)):
        for i, ids in enumerate(lists):
            if len(ids) == 0:
                raise outside(field, [], "a list of at least one id", part=f"[{i}]")
