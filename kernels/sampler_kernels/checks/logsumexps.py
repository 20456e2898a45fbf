"""Where supplied log-sum-exps may be used: they save reading the rows, so nothing else may need the rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sampler_kernels.checks.features import PROCESSING
from sampler_kernels.checks.memory import passes_once
from sampler_kernels.checks.refusing import outside, refusal
from sampler_kernels.host import HostColumns
from sampler_kernels.params import LogprobsMode, Method, SamplingParams
from sampler_kernels.refusal import Reason
from sampler_kernels.step import Step

_LEGAL = (
    "left alone beside supplied log-sum-exps: they go with method standard, a temperature above 0, no other "
    "processing, ranks false, top_logprobs 0, and raw_logprobs only at temperature 1"
)


def check_logsumexps_alone(step: Step, host: HostColumns, supplied: NDArray[np.bool_]) -> None:
    """Refuse a bitmask on rows with log-sum-exps: they are those of whole rows.

    Args:
        step: The step.
        host: Its columns.
        supplied: [B] requests whose rows come with log-sum-exps.

    Raises:
        StepRefused: PARAMETER_CONFLICT.
    """
    if step.token_bitmask_index is None:
        return
    of_request = np.repeat(np.arange(len(supplied)), host.draft_lengths + 1)
    masked = supplied[of_request] & (np.asarray(step.token_bitmask_index) >= 0)
    if masked.any():
        what = "token_bitmask is given beside supplied log-sum-exps, which are those of rows without a mask"
        request = int(of_request[masked.argmax()])
        raise refusal(Reason.PARAMETER_CONFLICT, what, field="token_bitmask", request=request)


@passes_once
def check_allows_logsumexp(params: SamplingParams, vocab_size: int) -> None:
    """Refuse a parameter set that needs whole rows although the step supplies their log-sum-exps.

    Raises:
        StepRefused: PARAMETER_CONFLICT, with the field and no request.
    """
    raw_apart = LogprobsMode.RAW_LOGPROBS in params.logprobs_modes and params.temperature != 1
    conflicts = {
        "method": params.method is not Method.STANDARD,
        "temperature": params.temperature == 0,
        "ranks": params.ranks,
        "top_logprobs": params.top_logprobs > 0,
        "logprobs_modes": raw_apart,
        **{feature.field: feature.in_use(params, vocab_size) for feature in PROCESSING.values()},
    }
    for field, conflict in conflicts.items():
        if conflict:
            raise outside(field, getattr(params, field), _LEGAL, reason=Reason.PARAMETER_CONFLICT)
