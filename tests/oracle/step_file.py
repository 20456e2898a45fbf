"""Reads a step-file object into requests: names, types and the rounding of logits to their dtype."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import ml_dtypes
import numpy as np

from tests.oracle.request import Json, Logits, Params, Refusal, Request

_DTYPES: dict[str, Json] = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
_NON_FINITE = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan}
_STEP_KEYS = {"vocab_size", "dtype", "draft_dtype", "requests"}
_REQUEST_KEYS = {"target_logits", "draft_logits", "draft_id_map", "draft_token_ids", "params"}
_PARAM_NAMES = {f.name for f in dataclasses.fields(Params)}
_FLOAT_PARAMS = {
    "temperature", "draft_temperature", "top_p", "min_p", "repetition_penalty", "frequency_penalty",
    "presence_penalty", "typical_epsilon", "typical_delta", "relaxed_margin",
}  # fmt: skip
_INT_PARAMS = {
    "top_k", "seed", "position", "min_tokens", "max_tokens", "num_output_tokens", "relaxed_top_n", "top_logprobs",
}  # fmt: skip
_ID_LISTS = {"stop_token_ids", "allowed_token_ids", "prompt_token_ids", "output_token_ids", "logprob_token_ids"}
_ID_TABLES = {"allowed_token_ids_by_row", "bad_words"}
_FLOAT_LISTS = {"synthetic_rates", "target_logsumexp", "draft_logsumexp"}
_BOOLS = {"ranks", "acceptance_probabilities"}


def round_logits(values: Json, dtype: str) -> Logits:
    """Round to fp32, then to `dtype` ("float32", "float16", "bfloat16"); the result is held as fp32."""
    with np.errstate(over="ignore", invalid="ignore"):
        as_fp32 = np.asarray(values, dtype=np.float64).astype(np.float32)
        return as_fp32.astype(_DTYPES[dtype]).astype(np.float32)


def load_step(step: Mapping[str, Json]) -> list[Request]:
    """The requests of one step-file object. Raises Refusal for unknown keys and wrong types; ranges are not checked."""
    _known(step, _STEP_KEYS, None)
    vocab_size = _integer(step.get("vocab_size"), None, "vocab_size")
    dtype = step.get("dtype")
    draft_dtype = step.get("draft_dtype", dtype)
    for name, value in (("dtype", dtype), ("draft_dtype", draft_dtype)):
        if value not in _DTYPES:
            raise Refusal(None, name, f"{value!r} is no dtype")
    requests = step.get("requests")
    if not isinstance(requests, list) or not requests:
        raise Refusal(None, "requests", "a step holds one request or more")
    return [_load_request(r, i, vocab_size, str(dtype), str(draft_dtype)) for i, r in enumerate(requests)]


def _load_request(given: Json, index: int, vocab_size: int, dtype: str, draft_dtype: str) -> Request:
    if not isinstance(given, Mapping):
        raise Refusal(index, "request", "not an object")
    _known(given, _REQUEST_KEYS, index)
    draft = given.get("draft_logits")
    id_map = given.get("draft_id_map")
    has_draft = draft is not None and not (draft == [] and given.get("draft_token_ids") == [])
    return Request(
        vocab_size=vocab_size,
        target_logits=_table(given.get("target_logits"), index, "target_logits", dtype),
        draft_token_ids=_ids(given.get("draft_token_ids"), index, "draft_token_ids"),
        params=load_params(given.get("params") or {}, index),
        draft_logits=_table(draft, index, "draft_logits", draft_dtype) if has_draft else None,
        draft_id_map=None if id_map is None else _ids(id_map, index, "draft_id_map"),
    )


def load_params(given: Json, index: int) -> Params:
    """Params from their step-file object; a null means the same as an absent key."""
    if not isinstance(given, Mapping):
        raise Refusal(index, "params", "not an object")
    _known(given, _PARAM_NAMES, index)
    return Params(**{name: _param(value, index, name) for name, value in given.items() if value is not None})


def _param(value: Json, index: int, name: str) -> Json:
    if name in _FLOAT_PARAMS:
        return _number(value, index, name)
    if name in _INT_PARAMS:
        return _integer(value, index, name)
    if name in _ID_LISTS:
        return _ids(value, index, name)
    if name in _ID_TABLES:
        return tuple(_ids(row, index, name) for row in _list(value, index, name))
    if name in _FLOAT_LISTS:
        return tuple(_number(entry, index, name) for entry in _list(value, index, name))
    if name == "logit_bias":
        if not isinstance(value, Mapping):
            raise Refusal(index, name, "not an object")
        return {_integer(key, index, name): _number(bias, index, name) for key, bias in value.items()}
    if name in _BOOLS:
        if not isinstance(value, bool):
            raise Refusal(index, name, "not a boolean")
        return value
    if name == "logprobs_modes":
        return tuple(_list(value, index, name))
    return value


def _known(given: Mapping[str, Json], names: set[str], index: int | None) -> None:
    for key in given:
        if key not in names:
            raise Refusal(index, str(key), "unknown key")


def _list(value: Json, index: int, name: str) -> list[Json]:
    if not isinstance(value, list):
        raise Refusal(index, name, "not a list")
    return value


def _number(value: Json, index: int | None, name: str) -> float:
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Refusal(index, name, f"{value!r} is not a number")
    return float(value)


def _integer(value: Json, index: int | None, name: str) -> int:
    if isinstance(value, str):
        try:
            return int(value, 10)
        except ValueError:
            raise Refusal(index, name, f"{value!r} is not a decimal integer") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refusal(index, name, f"{value!r} is not an integer")
    return value


def _ids(value: Json, index: int, name: str) -> tuple[int, ...]:
    return tuple(_integer(entry, index, name) for entry in _list(value, index, name))


def _table(value: Json, index: int, name: str, dtype: str) -> Logits:
    rows = [[_number(x, index, name) for x in _list(row, index, name)] for row in _list(value, index, name)]
    if len({len(row) for row in rows}) > 1:
        raise Refusal(index, name, "rows of different lengths")
    return round_logits(rows, dtype)
