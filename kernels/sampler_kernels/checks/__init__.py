"""Every rule about a step that can be decided before it runs. What passes here is well formed and supported.

Ranges and shapes come first, also for what is not built yet: a caller learns of a mistake before learning that the
feature is missing. Draft ids that lie on a device are the one thing not looked at; ``plan`` marks the illegal ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sampler_kernels.checks.extras import check_extras
from sampler_kernels.checks.ids import check_draft_ids, check_map
from sampler_kernels.checks.lengths import check_lengths
from sampler_kernels.checks.logsumexps import check_allows_logsumexp, check_logsumexps_alone
from sampler_kernels.checks.ranges import check_ranges
from sampler_kernels.checks.refusing import of_request
from sampler_kernels.checks.shapes import host_columns, position_column, seed_columns
from sampler_kernels.checks.supported import check_params_supported, check_step_supported
from sampler_kernels.host import HostColumns
from sampler_kernels.params import SamplingParams
from sampler_kernels.refusal import StepRefused
from sampler_kernels.step import Step

__all__ = ["check", "checked", "checked_again"]


def check(step: Step, backend: str = "cpu") -> None:
    """Refuse a step that breaks a rule or asks for what is not built yet; nothing is computed.

    Costs tens of microseconds for a batch whose parameter sets and maps were seen before.

    Args:
        step: Any step.
        backend: ``cpu`` or ``triton``: who would run it. Rules are the same everywhere, what is built is not.

    Raises:
        StepRefused: With reason, request, field, value and what would have been legal.
    """
    checked(step, backend)


def checked(step: Step, backend: str = "cpu") -> HostColumns:
    """:func:`check`, and the step's columns as they were read on the way.

    Raises:
        StepRefused: As :func:`check`.
    """
    host = host_columns(step)
    check_extras(step, host)
    _check_each_params(step, host, check_ranges)
    for index, params in enumerate(step.params):
        check_lengths(params, index, host)
    for block in step.draft_blocks:
        if block.id_map is not None:
            check_map(block.id_map, step.target_logits.shape[1])
    check_draft_ids(step, host)
    supplied = host.has_target_sums(step) | host.has_draft_sums(step)
    if supplied.any():
        check_logsumexps_alone(step, host, supplied)
        _check_each_params(step, host, check_allows_logsumexp, supplied)
    check_step_supported(step, backend)
    _check_each_params(step, host, lambda params, vocab_size: check_params_supported(params, (vocab_size, backend)))
    return host


def checked_again(step: Step, earlier: HostColumns) -> HostColumns:
    """:func:`checked` for a step like an earlier one that passed, at a quarter of its cost.

    Args:
        step: Equal to the earlier one in all but elements of logits and draft ids, seeds and positions. It holds the
            very same parameter sets and maps, and brings no histories, masks or log-sum-exps.
        earlier: Columns of the earlier one.

    Returns:
        Its columns.

    Raises:
        StepRefused: As :func:`check`.
    """
    seeds, has_seed = seed_columns(step, len(earlier.draft_lengths))
    host = earlier.of_others(seeds, has_seed, position_column(step, earlier.draft_lengths))
    check_draft_ids(step, host)
    return host


def _check_each_params(
    step: Step,
    host: HostColumns,
    rule: Callable[[SamplingParams, int], None],
    users: NDArray[np.bool_] | None = None,
) -> None:
    """Apply a rule to every parameter set; a refusal names the first request that uses the set.

    Args:
        step: The step.
        host: Its columns.
        rule: What a set and V have to pass.
        users: [B] requests that the rule is about: sets that none of them uses pass. None: all, and all sets.
    """
    vocab_size = step.target_logits.shape[1]
    mine = host.params_index if users is None else np.where(users, host.params_index, -1)
    index = 0
    try:
        for index, params in enumerate(step.params):
            if users is None or (mine == index).any():
                rule(params, vocab_size)
    except StepRefused as refused:
        first = np.flatnonzero(mine == index)
        raise of_request(refused, int(first[0]) if len(first) else None) from None
