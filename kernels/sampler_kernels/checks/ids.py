"""Token ids: those that parameters name, those of draft id maps, and the draft tokens themselves."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray

from sampler_kernels.checks.memory import passes_once
from sampler_kernels.checks.refusing import outside, refusal
from sampler_kernels.host import HostColumns
from sampler_kernels.params import SamplingParams
from sampler_kernels.refusal import Reason
from sampler_kernels.step import IdMap, Step

_CPU = torch.device("cpu")


def check_parameter_ids(params: SamplingParams, vocab_size: int) -> None:
    """Refuse ids of masks, biases, stops, bad words and chosen logprobs outside [0, V).

    Raises:
        StepRefused: TOKEN_ID_OUT_OF_RANGE, with the field and no request.
    """
    fields: tuple[tuple[str, Iterable[int]], ...] = (
        ("stop_token_ids", params.stop_token_ids),
        ("allowed_token_ids", params.allowed_token_ids or ()),
        ("allowed_token_ids_by_row", chain.from_iterable(params.allowed_token_ids_by_row or ())),
        ("logit_bias", params.logit_bias),
        ("bad_words", chain.from_iterable(params.bad_words)),
        ("logprob_token_ids", params.logprob_token_ids),
    )
    for field, ids in fields:
        for i in ids:
            if not 0 <= i < vocab_size:
                legal = f"in [0, {vocab_size})"
                raise outside(field, i, legal, part=": a token id", reason=Reason.TOKEN_ID_OUT_OF_RANGE)


@passes_once
def check_map(id_map: IdMap, vocab_size: int) -> None:
    """Refuse a map whose ids are not distinct ids of the target. A map on a device is read back, once in its life.

    Raises:
        StepRefused: TOKEN_ID_OUT_OF_RANGE or DUPLICATE_ID_IN_MAP, with the column.
    """
    ids = id_map.ids.detach().cpu().numpy()
    bad = (ids < 0) | (ids >= vocab_size)
    if bad.any():
        column = int(bad.argmax())
        legal = f"in [0, {vocab_size})"
        raise outside("draft_id_map", int(ids[column]), legal, part=f"[{column}]", reason=Reason.TOKEN_ID_OUT_OF_RANGE)
    # Not by the inverse: it is as large as the vocabulary and stays, and a step may bring maps that nobody uses.
    named = np.zeros(vocab_size, np.bool_)
    named[ids] = True
    if np.count_nonzero(named) < len(ids):
        again = np.ones(len(ids), np.bool_)
        again[np.unique(ids, return_index=True)[1]] = False
        column = int(again.argmax())
        what = (
            f"draft_id_map names target id {ids[column]} more than once, in column {column} too; ids must be distinct"
        )
        raise refusal(Reason.DUPLICATE_ID_IN_MAP, what, field="draft_id_map")


def check_draft_ids(step: Step, host: HostColumns) -> None:
    """Refuse draft tokens outside their range, or without a column in the draft logits that came with them.

    Ids after a -1 count too. Ids that lie on a device are not read back; ``plan`` marks them there instead.

    Raises:
        StepRefused: TOKEN_ID_OUT_OF_RANGE or DRAFT_TOKEN_NOT_IN_DRAFT_VOCABULARY, with request and position.
    """
    if step.draft_token_ids.device.type != "cpu" or not host.cu_drafts[-1]:
        return
    ids = step.draft_token_ids.numpy()
    vocab_size = step.target_logits.shape[1]
    # Nearly every step passes here: ids that the narrowest vocabulary has, and no map that might lack one.
    narrowest = min([vocab_size, *(block.logits.shape[1] for block in step.draft_blocks)])
    if ids.min() >= -1 and ids.max() < narrowest and all(block.id_map is None for block in step.draft_blocks):
        return
    widths = np.array([block.logits.shape[1] for block in step.draft_blocks] + [0], np.int64)
    width = np.repeat(widths[host.block_index], host.draft_lengths)
    limit = np.maximum(width, vocab_size)
    illegal = (ids < -1) | (ids >= limit)
    if illegal.any():
        at = int(illegal.argmax())
        request, position = _place(at, host)
        raise outside(
            "draft_token_ids",
            int(ids[at]),
            f"-1 or in [0, {limit[at]})",
            reason=Reason.TOKEN_ID_OUT_OF_RANGE,
            request=request,
            position=position,
        )
    missing = _without_column(step, host, ids, width)
    if missing.any():
        at = int(missing.argmax())
        request, position = _place(at, host)
        what = f"draft_token_ids is {ids[at]}, which has no column in the request's draft logits ({width[at]} columns)"
        raise refusal(
            Reason.DRAFT_TOKEN_NOT_IN_DRAFT_VOCABULARY,
            f"{what}; a draft token must be an id that its draft logits can produce",
            field="draft_token_ids",
            request=request,
            position=position,
        )


def _without_column(
    step: Step, host: HostColumns, ids: NDArray[np.int64], width: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """[D] bool: draft logits are present and have no column for the id. The ids are legal or -1."""
    mapped = [(b, block.id_map) for b, block in enumerate(step.draft_blocks) if block.id_map is not None]
    missing: NDArray[np.bool_] = (width > 0) & (ids >= width)
    if mapped:
        block = np.repeat(host.block_index, host.draft_lengths)
        for b, id_map in mapped:
            here = np.flatnonzero(block == b)
            if not len(here):
                continue
            column = id_map.inverse_on(_CPU).numpy()[ids[here]]
            missing[here] = (column < 0) & (ids[here] >= 0)
    return missing


def _place(draft: int, host: HostColumns) -> tuple[int, int]:
    """Request and position within it of a draft position counted over the batch."""
    request = int(np.searchsorted(host.cu_drafts, draft, side="right")) - 1
    return request, draft - int(host.cu_drafts[request])
