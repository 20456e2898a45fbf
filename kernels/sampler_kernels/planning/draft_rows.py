"""Which row of which draft block belongs to each draft position, and what its columns mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.batch import INVALID_TOKEN
from sampler_kernels.host import HostColumns
from sampler_kernels.rows import RowTable
from sampler_kernels.step import DraftBlock

_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, eq=False)
class DraftRows:
    """The draft side of a batch with D draft positions. Columns on the host, rows and maps on the device.

    Attributes:
        table: The R rows that some rule reads.
        draft_row: [D] int32 into ``table``, -1 for none.
        request: [R] int64, the request that each row of ``table`` belongs to.
        draft_map: [D] int32 into ``inverse_maps``, -1 where columns are target ids.
        id_limit: [D] int32, one above the largest id that may be a draft token there.
        inverse_maps: One [V] int32 on the device for each distinct map.
    """

    table: RowTable
    draft_row: NDArray[np.int32]
    request: NDArray[np.int64]
    draft_map: NDArray[np.int32]
    id_limit: NDArray[np.int32]
    inverse_maps: tuple[Tensor, ...]


def draft_rows(
    blocks: Sequence[DraftBlock], host: HostColumns, reads: NDArray[np.bool_], vocab_size: int, device: torch.device
) -> DraftRows:
    """Lay out the draft side of a checked step.

    Args:
        blocks: The step's draft blocks; moved to ``device`` where they lie elsewhere.
        host: The step's columns.
        reads: [B] bool, whether the request's method and draft temperature ask for draft logits.
        vocab_size: V.
        device: Where the step runs.
    """
    request = host.request_of_drafts()
    block = host.block_index[request]
    row = host.first_draft_row[request] + np.arange(len(request)) - host.cu_drafts[request]
    read = reads[request] & (block >= 0)
    draft_row = np.where(read, np.cumsum(read) - 1, -1).astype(np.int32)
    table = RowTable(
        blocks=tuple(one.logits.detach().to(device) for one in blocks),
        block=block[read].astype(np.int32),
        index=row[read],
    )
    # The entry behind the last block is for block index -1: no draft logits.
    used = set(block.tolist())
    # Only of blocks with drafts: an inverse is as large as the vocabulary.
    maps = dict.fromkeys(one.id_map for b, one in enumerate(blocks) if b in used and one.id_map is not None)
    number = {id_map: n for n, id_map in enumerate(maps)}
    map_of_block = [-1 if one.id_map is None else number.get(one.id_map, -1) for one in blocks] + [-1]
    limit_of_block = [one.logits.shape[1] if one.id_map is None else vocab_size for one in blocks] + [vocab_size]
    return DraftRows(
        table=table,
        draft_row=draft_row,
        request=request[read],
        draft_map=np.array(map_of_block, np.int32)[block],
        id_limit=np.array(limit_of_block, np.int32)[block],
        inverse_maps=tuple(one.inverse_on(device) for one in maps),
    )


def mark_invalid(ids: Tensor, id_limit: Tensor, draft_map: Tensor, inverse_maps: Sequence[Tensor]) -> Tensor:
    """Draft ids that lie on a device, checked there by the rules of ``checks.ids`` without a word to the host.

    Args:
        ids: [D] int32 or int64, anything.
        id_limit: [D] int32, one above the largest legal id.
        draft_map: [D] int32 into ``inverse_maps``, -1 for none.
        inverse_maps: [V] int32 each.

    Returns:
        [D] int32: the ids, with ``INVALID_TOKEN`` for those that no rule allows.
    """
    # Clamped before it is narrowed: cut to 32 bits, a wrong 64-bit id could look like a legal one.
    narrow = ids.clamp(INVALID_TOKEN, _MAX_INT32).to(torch.int32)
    valid = narrow < id_limit
    for number, inverse in enumerate(inverse_maps):
        column = inverse[narrow.clamp(0, len(inverse) - 1)]
        valid &= (draft_map != number) | (narrow < 0) | (column >= 0)
    return torch.where(valid, narrow, INVALID_TOKEN)
