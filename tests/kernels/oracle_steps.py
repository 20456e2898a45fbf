"""The oracle's step-file objects as steps of the core, and the core's results as result objects to compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from sampler_kernels import (
    FinishReason,
    IdMap,
    LogprobsMode,
    Method,
    ModeLogprobs,
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
_OF_THE_STEP = {"prompt_token_ids", "output_token_ids", "num_output_tokens", "target_logsumexp", "draft_logsumexp"}


def to_step(given: Mapping[str, Json]) -> Step:
    """The step that an object describes; a request without a seed is given one by the core."""
    dtype = _DTYPES[given["dtype"]]
    draft_dtype = _DTYPES[given.get("draft_dtype", given["dtype"])]
    requests = load_step(given)
    step = step_of([_ask(request, dtype, draft_dtype) for request in requests])
    return dataclasses.replace(step, seeds=[request.params.seed for request in requests])


def _ask(request: Request, dtype: torch.dtype, draft_dtype: torch.dtype) -> Ask:
    params = request.params
    brought = [name for name in _OF_THE_STEP if getattr(params, name) not in (None, ())]
    assert not brought, f"not written down as a step yet: {brought}"
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
    return {
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
