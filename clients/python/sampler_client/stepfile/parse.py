"""One step of a step file -> ``Step``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sampler_client.arrays import LOGITS_DTYPES
from sampler_client.params import SamplingParams
from sampler_client.step import DraftBlock, History, Step
from sampler_client.stepfile.fields import (
    as_choice,
    as_ids,
    as_integer,
    as_list,
    as_object,
    as_reals,
    mismatch,
    required,
)
from sampler_client.stepfile.params import RequestColumns, parse_params
from sampler_client.stepfile.strict_json import MalformedText, loads, malformed

_DTYPES: Final = {dtype.name: dtype for dtype in LOGITS_DTYPES}
_STEP_KEYS: Final = ("vocab_size", "dtype", "draft_dtype", "requests")
_REQUEST_KEYS: Final = ("target_logits", "draft_logits", "draft_token_ids", "draft_id_map", "params")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Request:
    """One request as the file gives it; logits still in float64, [rows][columns]."""

    target_rows: Sequence[NDArray[np.float64]]
    draft_rows: Sequence[NDArray[np.float64]] | None
    draft_token_ids: Sequence[int]
    draft_id_map: tuple[int, ...] | None
    params: SamplingParams
    columns: RequestColumns


def parse_step(text: bytes | str) -> Step:
    """Reads one step from its JSON text.

    Raises:
        InvalidStep: The text is no JSON or no step; the message names the place.
    """
    try:
        value = loads(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
    except MalformedText as error:
        raise malformed(str(error)) from None
    return step_of(value)


def step_of(value: object) -> Step:
    """The step that a JSON value describes.

    Ranges are left to the service. Counts are checked here, request by request, because the step itself only knows
    the sums.

    Raises:
        InvalidStep: It is no step; the message names the place.
    """
    given = as_object(value, "the step", _STEP_KEYS)
    vocab_size = as_integer(required(given, "vocab_size", "the step"), "vocab_size", range(2**31))
    dtype = _dtype(given, "dtype", "float32")
    draft_dtype = _dtype(given, "draft_dtype", dtype.name)
    entries = as_list(required(given, "requests", "the step"), "requests")
    requests = [_request(entry, f"requests[{index}]", vocab_size) for index, entry in enumerate(entries)]
    blocks, block_index = _draft_blocks(requests, draft_dtype)
    columns = [request.columns for request in requests]
    ids = [token for request in requests for token in request.draft_token_ids]
    target_rows = [row for request in requests for row in request.target_rows]
    return Step(
        target_logits=_rounded(target_rows, vocab_size, dtype),
        draft_lengths=[len(request.draft_token_ids) for request in requests],
        draft_token_ids=np.asarray(ids, dtype=np.int64),
        draft_blocks=blocks,
        draft_block_index=block_index,
        params=[request.params for request in requests],
        params_index=range(len(requests)),
        seeds=[column.seed for column in columns],
        positions=[column.position for column in columns],
        num_output_tokens=[column.num_output_tokens for column in columns],
        prompt_token_ids=_history([column.prompt_token_ids for column in columns]),
        output_token_ids=_history([column.output_token_ids for column in columns]),
        **_logsumexps(requests),
    )


def _dtype(given: Any, key: str, default: str) -> np.dtype[Any]:  # noqa: ANN401  (a JSON object)
    name = default if given.get(key) is None else as_choice(given[key], key, _DTYPES, "DTYPE_UNSUPPORTED")
    return _DTYPES[name]


def _request(value: object, path: str, vocab_size: int) -> _Request:
    given = as_object(value, path, _REQUEST_KEYS)
    draft_ids = (
        [] if given.get("draft_token_ids") is None else as_ids(given["draft_token_ids"], f"{path}.draft_token_ids")
    )
    k = len(draft_ids)
    target_path, draft_path = f"{path}.target_logits", f"{path}.draft_logits"
    target_rows = _rows(required(given, "target_logits", path), target_path, k + 1)
    for row in target_rows:
        if len(row) != vocab_size:
            raise mismatch(target_path, len(row), vocab_size, "logits in a row")
    draft_rows = None if given.get("draft_logits") is None else _rows(given["draft_logits"], draft_path, k)
    width = len(draft_rows[0]) if draft_rows else 0
    for row in draft_rows or ():
        if len(row) != width:
            raise mismatch(draft_path, len(row), width, "logits in a row, as many as its first row has")
    id_map = None if given.get("draft_id_map") is None else tuple(as_ids(given["draft_id_map"], f"{path}.draft_id_map"))
    if id_map is not None and draft_rows and len(id_map) != width:
        raise mismatch(f"{path}.draft_id_map", len(id_map), width, "ids, one for each draft logit")
    params, columns = parse_params(given.get("params"), f"{path}.params")
    for name, values, rows in (
        ("target_logsumexp", columns.target_logsumexp, k + 1),
        ("draft_logsumexp", columns.draft_logsumexp, k),
    ):
        if values is not None and len(values) != rows:
            raise mismatch(f"{path}.params.{name}", len(values), rows, "entries, one for each row")
    return _Request(
        target_rows=target_rows,
        draft_rows=draft_rows,
        draft_token_ids=draft_ids,
        draft_id_map=id_map,
        params=params,
        columns=columns,
    )


def _rows(value: object, path: str, count: int) -> list[NDArray[np.float64]]:
    rows = as_list(value, path)
    if len(rows) != count:
        raise mismatch(path, len(rows), count, "rows")
    return [as_reals(row, f"{path}[{index}]") for index, row in enumerate(rows)]


def _draft_blocks(requests: Sequence[_Request], dtype: np.dtype[Any]) -> tuple[list[DraftBlock], list[int]]:
    """Groups draft logits by draft vocabulary: size and map.

    A map without rows becomes a block without rows, so that the service checks it like any other.
    """
    rows: dict[tuple[int, tuple[int, ...] | None], list[NDArray[np.float64]]] = {}
    index = []
    for request in requests:
        if not request.draft_rows and request.draft_id_map is None:
            index.append(-1)
            continue
        width = len(request.draft_rows[0]) if request.draft_rows else len(request.draft_id_map or ())
        key = width, request.draft_id_map
        rows.setdefault(key, []).extend(request.draft_rows or ())
        index.append(-1 if request.draft_rows is None else list(rows).index(key))
    blocks = [
        DraftBlock(_rounded(block, width, dtype), None if id_map is None else np.asarray(id_map, dtype=np.int64))
        for (width, id_map), block in rows.items()
    ]
    return blocks, index


def _rounded(rows: Sequence[NDArray[np.float64]], width: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """[rows, width] in ``dtype``, by way of float32; what overflows is infinite, as rounding has it."""
    out = np.empty((len(rows), width), dtype=dtype)
    with np.errstate(over="ignore"):
        for index, row in enumerate(rows):
            out[index] = row.astype(np.float32).astype(dtype)
    return out


def _history(rows: Sequence[Sequence[int]]) -> History | None:
    return History.of(rows) if any(rows) else None


def _logsumexps(requests: Sequence[_Request]) -> dict[str, Any]:
    """The log-sum-exp columns of a step, for the requests that have them; zeros stand in for the others."""
    found: dict[str, Any] = {}
    targets = [request.columns.target_logsumexp for request in requests]
    if any(values is not None for values in targets):
        filled = [np.zeros(len(r.target_rows)) if v is None else v for r, v in zip(requests, targets, strict=True)]
        found["target_logsumexp"] = np.concatenate(filled)
        found["has_target_logsumexp"] = [values is not None for values in targets]
    drafts = [request.columns.draft_logsumexp for request in requests]
    if any(values is not None for values in drafts):
        pairs = [(r, v) for r, v in zip(requests, drafts, strict=True) if r.draft_rows]
        filled = [np.zeros(len(r.draft_rows or ())) if v is None else v for r, v in pairs]
        found["draft_logsumexp"] = np.concatenate([*filled, np.zeros(0)])
        found["has_draft_logsumexp"] = [values is not None for values in drafts]
    return found
