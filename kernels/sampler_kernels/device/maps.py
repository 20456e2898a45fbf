"""Reduced draft vocabularies in a kernel: which column of a draft row stands for a target id."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.device.compile import placeholder


@triton.jit
def draft_column(token, which, wanted, maps_ptr, vocab_size, HAS_MAPS: tl.constexpr):
    """Which column of its draft row each token is, int32; -1 where there is none; the id itself without a map.

    Args:
        token: int32 target ids, any.
        which: int32, the map to read, -1 for none; one for all, or one each.
        wanted: bool, where the answer matters; elsewhere it is any number.
        maps_ptr: [maps, V] int32, draft column of each target id, -1 for none.
        vocab_size: V.
        HAS_MAPS: Whether there are maps at all.
    """
    column = token
    if HAS_MAPS:
        which = token * 0 + which
        known = wanted & (which >= 0) & (token >= 0) & (token < vocab_size)
        # Maps times V may pass 2^31.
        mapped = tl.load(maps_ptr + which.to(tl.int64) * vocab_size + token, mask=known, other=-1)
        column = tl.where(which >= 0, mapped, token)
    return column


def stacked_maps(batch: Batch) -> Tensor:
    """[maps, V] int32: the inverse maps of a batch. The usual single one as it is, several copied on the device."""
    maps = batch.inverse_maps
    if not maps:
        return placeholder(batch.draft_row, torch.int32)
    return maps[0].unsqueeze(0) if len(maps) == 1 else torch.stack(maps)
