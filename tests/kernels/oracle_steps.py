"""The oracle's step-file objects as steps of the core, and the core's results as result objects to compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sampler_kernels import (
    FinishReason,
    IdMap,
    LogprobsMode,
    Method,
    ModeLogprobs,
    Ragged,
    SamplingParams,
    Status,
    Step,
    StepResult,
)
from tests.kernels.asking import Ask, step_of, tokens_of
from tests.oracle.request import Json, Logits, Params, Request
from tests.oracle.step_file import load_step

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_SHARED = [field.name for field in dataclasses.fields(SamplingParams)]


def to_step(given: Mapping[str, Json]) -> Step:
    """The step that an object describes; a request without a seed is given one by the core."""
    dtype = _DTYPES[given["dtype"]]
    draft_dtype = _DTYPES[given.get("draft_dtype", given["dtype"])]
    requests = load_step(given)
    step = step_of([_ask(request, dtype, draft_dtype) for request in requests])
    params = [request.params for request in requests]
    lengths = [one.num_output_tokens for one in params]
    return dataclasses.replace(
        step,
        seeds=[one.seed for one in params],
        prompt_token_ids=_ragged([one.prompt_token_ids for one in params]),
        output_token_ids=_ragged([one.output_token_ids for one in params]),
        num_output_tokens=[-1 if length is None else length for length in lengths],
        **_logsumexps(requests),
    )


def _ragged(lists: Sequence[Sequence[int]]) -> Ragged:
    cu = np.cumsum([0, *map(len, lists)]).tolist()
    return Ragged(torch.tensor([token for one in lists for token in one], dtype=torch.int64), cu)


def _logsumexps(requests: Sequence[Request]) -> dict[str, Any]:
    """The step's columns of supplied log-sum-exps; 0 stands where a request brings none."""
    columns: dict[str, Any] = {}
    for side in ("target", "draft"):
        given = [getattr(request.params, f"{side}_logsumexp") for request in requests]
        if all(one is None for one in given):
            continue
        logits = [getattr(request, f"{side}_logits") for request in requests]
        filled = [
            one if one is not None else [0.0] * (0 if table is None else len(table))
            for one, table in zip(given, logits, strict=True)
        ]
        columns[f"{side}_logsumexp"] = torch.tensor([x for one in filled for x in one], dtype=torch.float64)
        columns[f"has_{side}_logsumexp"] = [one is not None for one in given]
    return columns


def _ask(request: Request, dtype: torch.dtype, draft_dtype: torch.dtype) -> Ask:
    params = request.params
    ids = request.draft_id_map
    return Ask(
        target=_rows(request.target_logits, dtype),
        ids=request.draft_token_ids,
        draft=None if request.draft_logits is None else _rows(request.draft_logits, draft_dtype),
        id_map=None if ids is None else IdMap(torch.tensor(ids), request.vocab_size),
        params=_params(params),
        position=params.position,
    )


def _rows(logits: Logits, dtype: torch.dtype) -> Tensor:
    """The oracle holds what was rounded to the dtype already, so this rounds nothing."""
    return torch.from_numpy(np.ascontiguousarray(logits)).to(dtype)


def _params(params: Params) -> SamplingParams:
    values = {name: getattr(params, name) for name in _SHARED}
    modes = [LogprobsMode(mode) for mode in params.logprobs_modes]
    return SamplingParams(**(values | {"method": Method(params.method), "logprobs_modes": modes}))


def to_json(step: Step, result: StepResult) -> dict[str, Json]:
    """A result object of :func:`to_step`'s step, without what was not asked for."""
    tokens = tokens_of(result)
    return {"requests": [_request(step, result, r, tokens[r]) for r in range(len(tokens))]}


def _request(step: Step, result: StepResult, r: int, tokens: Sequence[int]) -> dict[str, Json]:
    assert step.params_index is not None
    params = step.params[step.params_index[r]]
    finish = FinishReason(result.finish_reason[r])
    bad_row = int(result.bad_row[r])
    mine = range(int(result.cu_tokens[r]), int(result.cu_tokens[r + 1]))
    numbers: dict[str, Json] = {
        "status": Status(result.status[r]).name,
        "token_ids": tokens,
        "num_accepted": int(result.num_accepted[r]),
        "seed": int(result.seeds[r]),
        "finish_reason": None if finish is FinishReason.NONE else finish.name.lower(),
        "lossy": bool(result.lossy[r]),
        "bad_row": None if bad_row < 0 else bad_row,
        "logprobs": {mode.value: _mode(result.logprobs[mode], mode, r, mine, params) for mode in params.logprobs_modes}
        if tokens
        else {},
    }
    if params.acceptance_probabilities and tokens:
        assert result.acceptance_probabilities is not None
        assert result.cu_acceptance is not None
        mine = range(int(result.cu_acceptance[r]), int(result.cu_acceptance[r + 1]))
        numbers["acceptance_probabilities"] = [float(result.acceptance_probabilities[i]) for i in mine]
    return numbers


def _mode(
    numbers: ModeLogprobs, mode: LogprobsMode, r: int, mine: Sequence[int], params: SamplingParams
) -> dict[str, Json]:
    logits = mode in (LogprobsMode.RAW_LOGITS, LogprobsMode.PROCESSED_LOGITS)
    return {
        "tokens": [float(numbers.values[m]) for m in mine],
        "ranks": [int(numbers.ranks[m]) for m in mine] if params.ranks else None,
        "cumulative": None if logits else float(numbers.cumulative[r]),
        "top": [_entries(numbers.top_ids, numbers.top_values, numbers.cu_top, m) for m in mine],
        "chosen": [_entries(numbers.chosen_ids, numbers.chosen_values, numbers.cu_chosen, m) for m in mine],
    }


def _entries(
    ids: np.ndarray[tuple[int], np.dtype[np.int32]],
    values: np.ndarray[tuple[int], np.dtype[np.float32]],
    cu: np.ndarray[tuple[int], np.dtype[np.int32]],
    m: int,
) -> list[dict[str, Json]]:
    return [{"token_id": int(ids[i]), "value": float(values[i])} for i in range(int(cu[m]), int(cu[m + 1]))]
