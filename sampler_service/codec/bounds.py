"""What a step may ask for beyond its own size: tables that the core lays out as wide as the widest request wants."""

from __future__ import annotations

from typing import Final

import numpy as np

from sampler_kernels import Step
from sampler_kernels.host import HostColumns
from sampler_service.errors import Reason, refuse
from sampler_service.limits import Limits

_FIXED: Final = 1024
"""Bytes of an answer without requests: names, times, tags."""

_PER_REQUEST: Final = 64
"""Bytes of the columns of requests, each entry at its longest encoding."""

_PER_TOKEN: Final = 13
"""Bytes of an emitted token: its id and an acceptance probability."""

_PER_TOKEN_AND_MODE: Final = 19
"""Bytes of a value, a rank and two prefix sums."""

_PER_ENTRY: Final = 8
"""Bytes of an id and its value, in the tables of top logprobs and of chosen ids."""

_MOST_PADDING: Final = 1 << 32
"""Columns by which draft rows may fall short of the step's widest, in all. Statistics take 1/32 byte for each."""


def check_bounds(step: Step, columns: HostColumns, limits: Limits) -> None:
    """Refuse a checked step whose answer could be too large to send, or whose draft rows differ too much in width.

    Raises:
        Refusal: LIMIT_EXCEEDED.
    """
    _check_answer(step, int(columns.cu_num_logits[-1]), len(columns.draft_lengths), limits.max_send_message_bytes)
    if len(step.draft_blocks) > 1:
        _check_padding(step)


def _check_answer(step: Step, rows: int, batch: int, most: int) -> None:
    """Every row may emit a token; tables are as wide for all of them as for the request that wants most."""
    top = min(max(one.top_logprobs for one in step.params), step.target_logits.shape[1])
    chosen = max(len(one.logprob_token_ids) for one in step.params)
    modes = len({mode for one in step.params for mode in one.logprobs_modes})
    per_row = _PER_TOKEN + modes * (_PER_TOKEN_AND_MODE + _PER_ENTRY * (top + chosen))
    size = _FIXED + batch * _PER_REQUEST + rows * per_row
    if size > most:
        what = (
            f"the answer may take {size} bytes, for {rows} tokens with {top} top_logprobs and {chosen} "
            f"logprob_token_ids in {modes} logprobs_modes; this server sends at most {most} bytes; split the step"
        )
        raise refuse(Reason.LIMIT_EXCEEDED, what)


def _check_padding(step: Step) -> None:
    shapes = np.array([block.logits.shape for block in step.draft_blocks], np.int64)
    padding = int((shapes[:, 0] * (shapes[:, 1].max() - shapes[:, 1])).sum())
    if padding > _MOST_PADDING:
        what = (
            f"draft_blocks has rows that fall short of the {shapes[:, 1].max()} columns of the widest by {padding} in "
            f"all; this server takes at most {_MOST_PADDING}; send wide and narrow ones in steps of their own"
        )
        raise refuse(Reason.LIMIT_EXCEEDED, what, field="draft_blocks")
