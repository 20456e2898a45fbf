"""Requests written one by one, put together in a step, and what each of them gets out of it, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels import DraftBlock, IdMap, ModeLogprobs, SamplingParams, Step, StepResult, verify


@dataclass(frozen=True, kw_only=True, eq=False)
class Ask:
    """One request, alone.

    Attributes:
        target: [k+1, V] logits.
        ids: [k] draft tokens.
        draft: [k, V_d] draft logits, or None.
        id_map: For a reduced draft vocabulary.
        params: Its parameters.
        seed: Its seed.
        position: Of the token that row 0 predicts.
    """

    target: Tensor
    ids: Sequence[int] = ()
    draft: Tensor | None = None
    id_map: IdMap | None = None
    params: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0
    position: int = 0


def step_of(asks: Sequence[Ask]) -> Step:
    """These requests as one step; each brings its draft logits as a block of its own."""
    blocks = [DraftBlock(ask.draft, ask.id_map) for ask in asks if ask.draft is not None]
    sends = np.array([ask.draft is not None for ask in asks])
    return Step(
        target_logits=torch.cat([ask.target for ask in asks]),
        draft_token_ids=torch.tensor([x for ask in asks for x in ask.ids], dtype=torch.int64),
        draft_lengths=[len(ask.ids) for ask in asks],
        draft_blocks=blocks,
        draft_block_index=np.where(sends, np.cumsum(sends) - 1, -1).tolist(),
        params=[ask.params for ask in asks],
        params_index=range(len(asks)),
        seeds=[ask.seed for ask in asks],
        positions=[ask.position for ask in asks],
    )


def answers(asks: Sequence[Ask], backend: str) -> StepResult:
    """What these requests get in one batch."""
    return verify(step_of(asks), backend=backend)


def tokens_of(result: StepResult) -> list[list[int]]:
    """The emitted tokens of each request."""
    return [part.tolist() for part in np.split(result.token_ids, result.cu_tokens[1:-1])]


Share = tuple[bytes, ...]


def shares(result: StepResult) -> list[Share]:
    """All that each request gets, as bytes: equal shares are equal bit for bit."""
    return [_share(result, r) for r in range(len(result.status))]


def _share(result: StepResult, r: int) -> Share:
    mine = slice(int(result.cu_tokens[r]), int(result.cu_tokens[r + 1]))
    columns = (result.num_accepted, result.status, result.seeds, result.finish_reason, result.lossy, result.bad_row)
    parts = [column[r].tobytes() for column in columns] + [result.token_ids[mine].tobytes()]
    for mode in sorted(result.logprobs):
        parts += _numbers(result.logprobs[mode], r, mine)
    return tuple(parts)


def _numbers(mode: ModeLogprobs, r: int, mine: slice) -> list[bytes]:
    if np.isnan(mode.cumulative[r]):  # Not asked for: another request of the batch may have wanted the mode.
        return []
    top, chosen = _entries(mode.cu_top, mine), _entries(mode.cu_chosen, mine)
    entries = (mode.top_ids[top], mode.top_values[top], mode.chosen_ids[chosen], mode.chosen_values[chosen])
    lengths = (np.diff(cu[mine.start : mine.stop + 1]) for cu in (mode.cu_top, mode.cu_chosen))
    columns = (mode.values[mine], mode.ranks[mine], mode.cumulative[r], *lengths, *entries)
    return [column.tobytes() for column in columns]


def _entries(cu: NDArray[np.int32], mine: slice) -> slice:
    return slice(int(cu[mine.start]), int(cu[mine.stop]))
