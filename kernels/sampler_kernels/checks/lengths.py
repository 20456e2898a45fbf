"""Rules that join a parameter set to the draft length of each request that uses it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sampler_kernels.checks.refusing import refusal
from sampler_kernels.host import HostColumns
from sampler_kernels.params import Method, SamplingParams
from sampler_kernels.refusal import Reason


def check_lengths(params: SamplingParams, index: int, host: HostColumns) -> None:
    """Refuse lists that are too short or too long for a request's k draft tokens.

    Args:
        params: The set at ``index`` of the step's params, in range by itself.
        index: Its place there.
        host: Columns of the step.

    Raises:
        StepRefused: PARAMETER_OUT_OF_RANGE or PARAMETER_REQUIRED, with the request.
    """
    needs_rates = params.method is Method.SYNTHETIC
    if params.synthetic_rates is None and params.allowed_token_ids_by_row is None and not needs_rates:
        return
    users = np.flatnonzero(host.params_index == index)
    k = host.draft_lengths[users]
    # Nothing is required for no draft tokens: on the wire an empty list and none are the same.
    if params.synthetic_rates is None and needs_rates and (k > 0).any():
        what = "method synthetic requires synthetic_rates, which is not given"
        first = int(users[(k > 0).argmax()])
        raise refusal(Reason.PARAMETER_REQUIRED, what, field="synthetic_rates", request=first)
    if params.synthetic_rates is not None:
        count = len(params.synthetic_rates)
        _refuse_first(k > count, users, k, "synthetic_rates", count, "at least as many as draft tokens")
    if params.allowed_token_ids_by_row is not None:
        count = len(params.allowed_token_ids_by_row)
        legal = "exactly one more than draft tokens"
        _refuse_first(k + 1 != count, users, k, "allowed_token_ids_by_row", count, legal)


def _refuse_first(
    bad: NDArray[np.bool_], users: NDArray[np.intp], k: NDArray[np.int64], field: str, count: int, legal: str
) -> None:
    if bad.any():
        first = int(bad.argmax())
        what = f"{field} has {count} entries for {k[first]} draft tokens; it must have {legal}"
        raise refusal(Reason.PARAMETER_OUT_OF_RANGE, what, field=field, request=int(users[first]))
