"""The step as the operations see it: columns of equal type on the device, made once from a checked Step."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from sampler_kernels.processing import EditSources
from sampler_kernels.rows import RowTable


class MethodCode(enum.IntEnum):
    """Which rule decides a request. Greedy is what temperature 0 makes of the lossless methods."""

    GREEDY = 0
    STANDARD = 1
    STRICT = 2
    BLOCK = 3
    SYNTHETIC = 4
    TYPICAL = 5
    RELAXED = 6


INVALID_TOKEN: Final = -2
"""What stands in ``Batch.draft_token_ids`` for an id in device memory that is outside its range, or has no column in
the draft logits that came with it. Its request ends as INVALID_DRAFT_TOKEN; no id below -1 has another meaning."""


@dataclass(frozen=True, eq=False)
class Batch:
    """B requests, N target rows, D draft positions. All tensors lie on the device that runs the step.

    Attributes:
        vocab_size: V, columns of every target row.
        target: The N target rows, request by request, with what processes them.
        draft: The draft rows that may be read: those of requests with draft logits, whose method asks for q and
            whose draft is no point mass.
        draft_lengths: [B] int32, k_r.
        cu_num_logits: [B+1] int32, first target row of each request.
        cu_drafts: [B+1] int32, first draft position of each request.
        draft_token_ids: [D] int32, target ids below max(V, V_d), -1 where no token was drawn, INVALID_TOKEN.
        draft_row: [D] int32, row of ``draft`` at each draft position, -1 for a point mass or where no rule reads it.
        inverse_maps: One [V] int32 table for each reduced draft vocabulary: draft column of a target id or -1.
        draft_map: [D] int32, which of ``inverse_maps`` reads the request's draft rows, -1 where columns are target ids.
        method: [B] int32, :class:`MethodCode`.
        temperature: [B] float64, 0 for argmax.
        draft_temperature: [B] float64, never 0 where a draft row is read.
        seed: [B] int64, the bits of the unsigned 64-bit seed.
        position: [B] int64, the bits of the unsigned 64-bit position of row 0.
        edit_sources: What ``processors`` makes the edits of the target rows from; None where nothing sparse is asked.
    """

    vocab_size: int
    target: RowTable
    draft: RowTable
    draft_lengths: Tensor
    cu_num_logits: Tensor
    cu_drafts: Tensor
    draft_token_ids: Tensor
    draft_row: Tensor
    inverse_maps: tuple[Tensor, ...]
    draft_map: Tensor
    method: Tensor
    temperature: Tensor
    draft_temperature: Tensor
    seed: Tensor
    position: Tensor
    edit_sources: EditSources | None = None
