"""Step -> what lossy methods are told, and where emitted tokens are cut, as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.batch import CutColumns, LossyColumns
from sampler_kernels.host import HostColumns, prefix_sum
from sampler_kernels.params import SamplingParams

_MAX_INT32 = 2**31 - 1


def method_columns(params: Sequence[SamplingParams], host: HostColumns) -> dict[str, NDArray[Any]]:
    """What there is to upload, by name; nothing for a step without lossy methods, stop ids and limits of length.

    Args:
        params: The parameter sets of a checked step.
        host: Its columns.
    """
    columns: dict[str, NDArray[Any]] = {}
    if any(one.method.lossy for one in params):
        columns |= _lossy(params, host)
    if any(len(one.stop_token_ids) or one.max_tokens is not None for one in params):
        columns |= _cuts(params, host)
    return columns


def lossy_columns(columns: Mapping[str, Tensor]) -> LossyColumns | None:
    """Of the uploaded :func:`method_columns`; None where no method is lossy."""
    if "synthetic_rate" not in columns:
        return None
    return LossyColumns(
        synthetic_rate=columns["synthetic_rate"],
        typical_epsilon=columns["typical_epsilon"],
        typical_delta=columns["typical_delta"],
        relaxed_top_n=columns["relaxed_top_n"],
        relaxed_margin=columns["relaxed_margin"],
    )


def cut_columns(columns: Mapping[str, Tensor]) -> CutColumns | None:
    """Of the uploaded :func:`method_columns`; None where nothing can be cut."""
    if "max_tokens" not in columns:
        return None
    return CutColumns(
        stop_ids=columns["cut_ids"],
        cu_stops=columns["cu_cut_ids"],
        stop_set=columns["cut_set"],
        max_tokens=columns["max_tokens"],
    )


def _lossy(params: Sequence[SamplingParams], host: HostColumns) -> dict[str, NDArray[Any]]:
    index = host.params_index
    # One zero behind each list: what positions without a rate point at.
    rates = [np.asarray((*(one.synthetic_rates or ()), 0.0), np.float64) for one in params]
    first = prefix_sum(np.array([len(one) for one in rates], np.int64))
    of_place = index[host.request_of_drafts()]
    j = np.arange(len(of_place)) - np.repeat(host.cu_drafts[:-1], host.draft_lengths)
    place = np.minimum(first[of_place] + j, first[of_place + 1] - 1)
    return {
        "synthetic_rate": np.concatenate(rates)[place],
        "typical_epsilon": np.array([one.typical_epsilon for one in params], np.float64)[index],
        "typical_delta": np.array([one.typical_delta for one in params], np.float64)[index],
        "relaxed_top_n": np.array([min(one.relaxed_top_n or 1, _MAX_INT32) for one in params], np.int32)[index],
        "relaxed_margin": np.array([one.relaxed_margin or 0.0 for one in params], np.float64)[index],
    }


def _cuts(params: Sequence[SamplingParams], host: HostColumns) -> dict[str, NDArray[Any]]:
    stops = [np.unique(np.asarray(one.stop_token_ids, np.int32)) for one in params]
    limits = [_MAX_INT32 if one.max_tokens is None else min(one.max_tokens, _MAX_INT32) for one in params]
    return {
        "cut_ids": np.concatenate(stops),
        "cu_cut_ids": prefix_sum(np.array([len(one) for one in stops], np.int64)).astype(np.int32),
        "cut_set": host.params_index.astype(np.int32),
        "max_tokens": np.array(limits, np.int32)[host.params_index],
    }
