"""The temperature of each row of a step: that of the request it belongs to."""

from __future__ import annotations

from torch import Tensor

from sampler_kernels.batch import Batch


def target_temperature(batch: Batch) -> Tensor:
    """[N] float64, of each row of ``batch.target``."""
    return batch.temperature.repeat_interleave(batch.draft_lengths.long() + 1)


def draft_temperature(batch: Batch) -> Tensor:
    """[R] float64, of each row of ``batch.draft``."""
    of_place = batch.draft_temperature.repeat_interleave(batch.draft_lengths.long())
    read = batch.draft_row >= 0
    out = of_place.new_empty(len(batch.draft))
    out[batch.draft_row[read].long()] = of_place[read]
    return out
