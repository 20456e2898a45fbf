"""Results and errors -> one line of JSON."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sampler_client.errors import SamplerError
from sampler_client.params import LogprobsMode, SamplingParams
from sampler_client.result import EntriesByToken, FinishReason, RequestLogprobs, RequestResult, StepResult
from sampler_client.step import Step

_EXACT_IN_A_DOUBLE: Final = 2**53
"""From here on a 64-bit integer is printed as a string: many JSON readers hold numbers as doubles."""


def render_result(step: Step, result: StepResult) -> str:
    """The line of a step that was answered; ``step`` says what each request asked for."""
    index = range(len(step.draft_lengths)) if step.params_index is None else step.params_index
    asked = [step.params[entry] for entry in index]
    pairs = zip(result.requests, asked, strict=True)
    return json.dumps({"requests": [_request(request, params) for request, params in pairs]}, allow_nan=False)


def render_error(error: SamplerError) -> str:
    """The line of a step that was refused."""
    return json.dumps({"error": {"code": error.code, "reason": error.reason, "message": error.message}})


def _request(request: RequestResult, params: SamplingParams) -> dict[str, Any]:
    reason = request.finish_reason
    line: dict[str, Any] = {
        "status": request.status.name,
        "token_ids": request.token_ids.tolist(),
        "num_accepted": request.num_accepted,
        "seed": request.seed if request.seed < _EXACT_IN_A_DOUBLE else str(request.seed),
        "finish_reason": None if reason is FinishReason.NONE else reason.name.lower(),
        "lossy": request.lossy,
        "bad_row": request.bad_row,
        "logprobs": {},
    }
    reported = request.logprobs
    for mode in LogprobsMode:
        if mode in params.logprobs_modes:
            line["logprobs"][mode.value] = _mode(reported.get(mode), ranks=params.ranks)
    if params.acceptance_probabilities:
        values = request.acceptance_probabilities
        line["acceptance_probabilities"] = [] if values is None else [_double(value) for value in values.tolist()]
    return line


def _mode(reported: RequestLogprobs | None, *, ranks: bool) -> dict[str, Any]:
    """One mode of one request; lists of nothing where the request emitted nothing."""
    if reported is None:
        return {"tokens": [], "ranks": [] if ranks else None, "cumulative": None, "top": [], "chosen": []}
    return {
        "tokens": _singles(reported.values),
        "ranks": reported.ranks.tolist() if ranks and reported.ranks is not None else None,
        "cumulative": None if reported.cumulative is None else _double(reported.cumulative),
        "top": _entries(reported.top),
        "chosen": _entries(reported.chosen),
    }


def _entries(by_token: EntriesByToken) -> list[list[dict[str, Any]]]:
    return [
        [
            {"token_id": token_id, "value": value}
            for token_id, value in zip(entries.token_ids.tolist(), _singles(entries.values), strict=True)
        ]
        for entries in by_token
    ]


def _singles(values: NDArray[np.float32]) -> list[float | str]:
    """float32 values with the fewest digits that mean the same float32."""
    return [_double(float(str(value))) for value in values]


def _double(value: float) -> float | str:
    """A number, or the string that JSON has to use for what is not finite."""
    return value if math.isfinite(value) else str(value)
