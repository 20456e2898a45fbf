"""The per-request columns of a step as numpy arrays, so that neither checks nor planning loop over requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sampler_kernels.step import Step


@dataclass(eq=False, slots=True)
class HostColumns:
    """What ``checks`` read out of a :class:`~sampler_kernels.step.Step` of B requests, and found to fit together.

    Attributes:
        draft_lengths: [B] int64, k_r.
        cu_drafts: [B+1] int64, first draft position of each request.
        cu_num_logits: [B+1] int64, first target row of each request.
        params_index: [B] int64 into ``Step.params``.
        block_index: [B] int64 into ``Step.draft_blocks``, -1 for a request without draft logits.
        first_draft_row: [B] int64, the row of its block where the request's draft rows begin.
        seeds: [B] uint64, 0 where ``has_seed`` is False.
        has_seed: [B] bool.
        positions: [B] uint64.
    """

    draft_lengths: NDArray[np.int64]
    cu_drafts: NDArray[np.int64]
    cu_num_logits: NDArray[np.int64]
    params_index: NDArray[np.int64]
    block_index: NDArray[np.int64]
    first_draft_row: NDArray[np.int64]
    seeds: NDArray[np.uint64]
    has_seed: NDArray[np.bool_]
    positions: NDArray[np.uint64]

    def of_others(
        self, seeds: NDArray[np.uint64], has_seed: NDArray[np.bool_], positions: NDArray[np.uint64]
    ) -> HostColumns:
        """The same columns with other random numbers, for a step of the same shape."""
        return HostColumns(
            self.draft_lengths,
            self.cu_drafts,
            self.cu_num_logits,
            self.params_index,
            self.block_index,
            self.first_draft_row,
            seeds,
            has_seed,
            positions,
        )

    def request_of_drafts(self) -> NDArray[np.int64]:
        """[D] int64, the request that each draft position belongs to."""
        return np.repeat(np.arange(len(self.draft_lengths)), self.draft_lengths)

    def has_target_sums(self, step: Step) -> NDArray[np.bool_]:
        """[B], requests whose target rows come with log-sum-exps."""
        if step.target_logsumexp is None:
            return np.zeros(len(self.draft_lengths), np.bool_)
        if step.has_target_logsumexp is None:
            return np.ones(len(self.draft_lengths), np.bool_)
        return np.asarray(step.has_target_logsumexp, np.bool_)

    def has_draft_sums(self, step: Step) -> NDArray[np.bool_]:
        """[B], requests whose draft rows come with log-sum-exps."""
        if step.draft_logsumexp is None:
            return np.zeros(len(self.draft_lengths), np.bool_)
        if step.has_draft_logsumexp is None:
            return self.block_index >= 0
        return np.asarray(step.has_draft_logsumexp, np.bool_)


def prefix_sum(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """[n+1] int64: 0, then the running sum of [n] lengths."""
    total = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=total[1:])
    return total
