"""One step as the caller describes it: tensors and columns in, nothing checked, nothing copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.params import SamplingParams


@dataclass(frozen=True, eq=False)
class IdMap:
    """Which target id each column of a reduced draft vocabulary stands for.

    Attributes:
        ids: [V_d] int32 or int64, distinct target ids: draft column i is target id ``ids[i]``.
        vocab_size: V of the target.
    """

    ids: Tensor
    vocab_size: int

    @cached_property
    def inverse(self) -> Tensor:
        """[V] int32 on the device of ``ids``: the draft column of each target id, -1 where there is none."""
        columns = torch.arange(self.ids.numel(), dtype=torch.int32, device=self.ids.device)
        inverse = torch.full((self.vocab_size,), -1, dtype=torch.int32, device=self.ids.device)
        inverse[self.ids.long()] = columns
        return inverse

    @cached_property
    def _copies(self) -> dict[torch.device, Tensor]:
        return {}

    def inverse_on(self, device: torch.device) -> Tensor:
        """:attr:`inverse` on a device, copied there once in the life of the map."""
        if self.inverse.device == device:
            return self.inverse
        if device not in self._copies:
            self._copies[device] = self.inverse.to(device)
        return self._copies[device]


@dataclass(frozen=True, eq=False)
class DraftBlock:
    """Draft logits of some requests of a step, which share a draft vocabulary.

    Attributes:
        logits: [rows, V_d] fp32, fp16 or bf16, last stride 1, row stride free; raw, not yet divided by a temperature.
            The requests assigned to the block use its rows in request order, k_r each.
        id_map: For reduced vocabularies; None means that draft column i is target id i.
    """

    logits: Tensor
    id_map: IdMap | None = None


@dataclass(frozen=True, eq=False)
class Ragged:
    """One list of ids a request, laid end to end.

    Attributes:
        values: [cu[B]] int32 or int64.
        cu: [B+1] prefix sum of the lengths.
    """

    values: Tensor
    cu: Sequence[int]


@dataclass(frozen=True, eq=False)
class TokenCounts:
    """Distinct ids and how often each occurred, for requests whose history is kept as counts.

    Enough for penalties; bad words of several ids need the ids in their order.

    Attributes:
        ids: Distinct ids of each request.
        counts: [len(ids.values)] int32 or int64 on the CPU, each at least 1.
    """

    ids: Ragged
    counts: Tensor

    @cached_property
    def totals(self) -> NDArray[np.int64]:
        """[B] tokens that each request's counts add up to."""
        cu = np.asarray(self.ids.cu, np.int64)
        prefix = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.counts.numpy(), dtype=np.int64)])
        totals: NDArray[np.int64] = np.diff(prefix[cu])
        return totals


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """A batch of B >= 1 requests to verify together. N = sum of k_r + 1 over the requests.

    Attributes:
        target_logits: [N, V] fp32, fp16 or bf16, last stride 1, row stride free. Row j of a request scores the token
            that follows j draft tokens. Never written to.
        draft_token_ids: [sum k_r] int32 or int64, target ids; -1 where no token was drawn. On the CPU they are
            checked before anything runs; on a device they are checked there, and an id outside its range costs its
            own request the status INVALID_DRAFT_TOKEN.
        draft_lengths: [B] k_r, 0..128.
        draft_blocks: Draft logits; dtypes are per step, V_d and map per block.
        draft_block_index: [B] the block of each request, -1 for none (the draft is then a point mass on the draft
            token). None: block 0 for all if there is exactly one block, else no request has draft logits.
        params: The distinct parameter sets of the batch.
        params_index: [B] into ``params``; None: all use ``params[0]``.
        seeds: [B] 64-bit seeds, None for a request that shall be given one; None: all are given one.
        positions: [B] absolute index in its sequence of the token that row 0 predicts; None: 0 for all.
        prompt_token_ids: Prompt ids of each request, for penalties and bad words.
        output_token_ids: Ids output so far, the last emitted one included.
        output_token_counts: The same as counts, for requests that give no ``output_token_ids``. (A prompt needs none:
            penalties only ask whether an id is in it, so that its distinct ids are as good as all.)
        num_output_tokens: [B] where it is not the length of the output history; -1 where it is.
        token_bitmask: [rows, ceil(V / 32)] int32; bit i % 32 of word i / 32 allows id i.
        token_bitmask_index: [N] row of ``token_bitmask`` for each target row, -1 for none.
        target_logsumexp: [N] fp64 log-sum-exp of target row / temperature, where the caller has it.
        has_target_logsumexp: [B] for which requests ``target_logsumexp`` holds; None: for all, if it is given.
        draft_logsumexp: [rows of draft logits, in request order] fp64, likewise.
        has_draft_logsumexp: [B] for which requests ``draft_logsumexp`` holds; None: for all that have draft logits, if
            it is given.
    """

    target_logits: Tensor
    draft_token_ids: Tensor
    draft_lengths: Sequence[int]
    draft_blocks: Sequence[DraftBlock] = ()
    draft_block_index: Sequence[int] | None = None
    params: Sequence[SamplingParams] = (SamplingParams(),)
    params_index: Sequence[int] | None = None
    seeds: Sequence[int | None] | NDArray[np.uint64] | None = None
    positions: Sequence[int] | NDArray[np.uint64] | None = None
    prompt_token_ids: Ragged | None = None
    output_token_ids: Ragged | None = None
    output_token_counts: TokenCounts | None = None
    num_output_tokens: Sequence[int] | None = None
    token_bitmask: Tensor | None = None
    token_bitmask_index: Sequence[int] | None = None
    target_logsumexp: Tensor | None = None
    has_target_logsumexp: Sequence[bool] | None = None
    draft_logsumexp: Tensor | None = None
    has_draft_logsumexp: Sequence[bool] | None = None

    def with_numbers(
        self,
        *,
        target_logits: Tensor,
        draft_token_ids: Tensor,
        draft_blocks: Sequence[DraftBlock],
        seeds: Sequence[int | None] | NDArray[np.uint64] | None,
        positions: Sequence[int] | NDArray[np.uint64] | None,
    ) -> Step:
        """The same step with other logits, draft ids, seeds and positions."""
        other = object.__new__(Step)
        # Not by dataclasses.replace, which sets each of the 20 fields anew: that takes 7 us, this 1.
        other.__dict__.update(
            self.__dict__,
            target_logits=target_logits,
            draft_token_ids=draft_token_ids,
            draft_blocks=draft_blocks,
            seeds=seeds,
            positions=positions,
        )
        return other
