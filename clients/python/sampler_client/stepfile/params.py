"""The ``params`` object of a request: what becomes ``SamplingParams``, and what becomes a column of the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sampler_client.params import LogprobsMode, Method, SamplingParams
from sampler_client.stepfile.fields import (
    COUNT32,
    UINT64,
    as_choice,
    as_flag,
    as_ids,
    as_integer,
    as_list,
    as_number,
    as_numbers,
    as_object,
    as_reals,
)
from sampler_client.stepfile.strict_json import malformed, shown


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestColumns:
    """What the file writes under params and the contract has as columns, one entry per request.

    Attributes:
        seed: 0..2^64-1, or None for a seed made by the service.
        position: Absolute index of the token that the first row predicts; a file is one step, so 0 is its default.
        prompt_token_ids: The prompt, empty if not given.
        output_token_ids: Outputs before the step, empty if not given.
        num_output_tokens: Their number where it differs, -1 if not given.
        target_logsumexp: float64 log-sum-exp of each target row divided by the temperature, or None.
        draft_logsumexp: float64 likewise for each draft row, or None.
    """

    seed: int | None = None
    position: int = 0
    prompt_token_ids: Sequence[int] = ()
    output_token_ids: Sequence[int] = ()
    num_output_tokens: int = -1
    target_logsumexp: NDArray[np.float64] | None = None
    draft_logsumexp: NDArray[np.float64] | None = None


def parse_params(value: object, path: str) -> tuple[SamplingParams, RequestColumns]:
    """Reads a ``params`` object. A key that is absent or null has its default.

    Raises:
        InvalidStep: An unknown key, or a value of the wrong type or beyond what the contract can carry.
    """
    given = as_object({} if value is None else value, path, _KEYS)
    read = {key: _READERS[key](entry, f"{path}.{key}") for key, entry in given.items() if entry is not None}
    columns = {key: read.pop(key) for key in _COLUMN_KEYS if key in read}
    return SamplingParams(**read), RequestColumns(**columns)


def _method(value: object, path: str) -> Method:
    return Method(as_choice(value, path, [method.value for method in Method], "ENUM_UNKNOWN"))


def _modes(value: object, path: str) -> list[LogprobsMode]:
    names = [mode.value for mode in LogprobsMode]
    entries = as_list(value, path)
    return [LogprobsMode(as_choice(entry, f"{path}[{i}]", names, "ENUM_UNKNOWN")) for i, entry in enumerate(entries)]


def _id_lists(value: object, path: str) -> list[list[int]]:
    return [as_ids(entry, f"{path}[{i}]") for i, entry in enumerate(as_list(value, path))]


def _bias(value: object, path: str) -> dict[int, float]:
    if not isinstance(value, dict):
        raise malformed(f'{path} is {shown(value)}, expected an object {{"id": bias}}', path)
    return {
        as_ids([key], f"{path} key {shown(key)}")[0]: as_number(bias, f"{path}[{shown(key)}]")
        for key, bias in value.items()
    }


def _seed(value: object, path: str) -> int:
    return as_integer(value, path, UINT64)


def _count32(value: object, path: str) -> int:
    return as_integer(value, path, COUNT32)


_READERS: Final[Mapping[str, Callable[[object, str], Any]]] = MappingProxyType(
    {
        "method": _method,
        "temperature": as_number,
        "draft_temperature": as_number,
        "top_k": as_integer,
        "top_p": as_number,
        "min_p": as_number,
        "seed": _seed,
        "position": _seed,
        "stop_token_ids": as_ids,
        "min_tokens": as_integer,
        "max_tokens": as_integer,
        "allowed_token_ids": as_ids,
        "allowed_token_ids_by_row": _id_lists,
        "logit_bias": _bias,
        "bad_words": _id_lists,
        "repetition_penalty": as_number,
        "frequency_penalty": as_number,
        "presence_penalty": as_number,
        "prompt_token_ids": as_ids,
        "output_token_ids": as_ids,
        "num_output_tokens": _count32,
        "synthetic_rates": as_numbers,
        "typical_epsilon": as_number,
        "typical_delta": as_number,
        "relaxed_top_n": as_integer,
        "relaxed_margin": as_number,
        "logprobs_modes": _modes,
        "ranks": as_flag,
        "top_logprobs": as_integer,
        "logprob_token_ids": as_ids,
        "acceptance_probabilities": as_flag,
        "target_logsumexp": as_reals,
        "draft_logsumexp": as_reals,
    }
)
_KEYS: Final = tuple(_READERS)
_COLUMN_KEYS: Final = tuple(field.name for field in fields(RequestColumns))
