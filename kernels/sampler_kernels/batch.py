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
class LossyColumns:
    """What the methods that change the distribution are told. A request of another method has any value.

    Attributes:
        synthetic_rate: [D] float64, the rate at which each draft token stands.
        typical_epsilon: [B] float64.
        typical_delta: [B] float64.
        relaxed_top_n: [B] int32.
        relaxed_margin: [B] float64, may be inf.
    """

    synthetic_rate: Tensor
    typical_epsilon: Tensor
    typical_delta: Tensor
    relaxed_top_n: Tensor
    relaxed_margin: Tensor


@dataclass(frozen=True, eq=False)
class CutColumns:
    """Where emitted tokens are cut.

    Attributes:
        stop_ids: [S] int32, the stop ids of each parameter set, ascending and distinct within the set.
        cu_stops: [P+1] int32, first entry of each set.
        stop_set: [B] int32, the set of each request.
        max_tokens: [B] int32, the most tokens that each request may emit; the largest int32 where there is no limit.
    """

    stop_ids: Tensor
    cu_stops: Tensor
    stop_set: Tensor
    max_tokens: Tensor


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
        lossy: Of synthetic, typical and relaxed; None where no request uses one.
        cuts: Stop ids and limits of length; None where no request has either.
        wants_acceptance: [B] bool, requests whose acceptance probabilities are reported; None where there is none.
        methods: On the host, those that occur in ``method``, so that no device is asked; None where nobody knows.
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
    lossy: LossyColumns | None = None
    cuts: CutColumns | None = None
    wants_acceptance: Tensor | None = None
    methods: frozenset[MethodCode] | None = None
