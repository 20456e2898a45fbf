"""Rows of logits wherever they lie: several matrices, reached row by row, never gathered into one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.processing import Processing

LOGIT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""Dtypes that logits may come in."""


@dataclass(frozen=True, eq=False)
class RowPointers:
    """A row table as a kernel walks it.

    Attributes:
        address: [R] int64 on the device, of each row's first element.
        width: [R] int32 on the device, columns of each row.
        view: [R, 3] int64 on the device, addresses of what masks and edits each row, laid out by the kernels'
            processors; None where no row is masked or edited.
    """

    address: Tensor
    width: Tensor
    view: Tensor | None = None


@dataclass(frozen=True, eq=False)
class SuppliedSums:
    """Log-sum-exps that the caller has of R rows anyway.

    Attributes:
        log_sum_exp: [R] float64 on the device, ln of the sum of exp(x / T) of each row; anything where not given.
        given: [R] bool on the device.
        reported_ids: [R, c] int32 on the device, ids whose logits are reported of each row, -1 for none; None: c = 0.
    """

    log_sum_exp: Tensor
    given: Tensor
    reported_ids: Tensor | None = None


@dataclass(frozen=True, eq=False)
class RowTable:
    """R rows, each a row of one of the ``blocks``.

    A kernel walks the table by address; the CPU backend takes the rows it needs. Rows of several clients stand in
    one table without a copy.

    Attributes:
        blocks: Matrices [n_b, width_b] of one dtype on one device, last stride 1, row stride free.
        block: [R] int32, the block of each row.
        index: [R] int64, the row within its block.
        uploaded: The pointers, where ``plan`` has sent them to the device with the rest of the step.
        processing: What happens to elements as they are loaded; None for the rows as the client gave them.
        supplied: Log-sum-exps that came with the rows; None where no request brings any.
    """

    blocks: tuple[Tensor, ...]
    block: NDArray[np.int32]
    index: NDArray[np.int64]
    uploaded: RowPointers | None = None
    processing: Processing | None = None
    supplied: SuppliedSums | None = None

    def __len__(self) -> int:
        """R."""
        return len(self.block)

    @property
    def raw(self) -> RowTable:
        """The rows as the client gave them."""
        return self if self.processing is None else replace(self, processing=None)

    @property
    def unfiltered(self) -> RowTable:
        """The rows after masks, biases and penalties, before filters."""
        if self.processing is None or self.processing.filters is None:
            return self
        return replace(self, processing=self.processing.unfiltered)

    @property
    def dtype(self) -> torch.dtype:
        """Of every block; fp32 for an empty table."""
        return self.blocks[0].dtype if self.blocks else torch.float32

    @property
    def max_width(self) -> int:
        """The widest row's number of columns; 0 for an empty table."""
        return max((block.shape[1] for block in self.blocks), default=0)

    def widths(self) -> NDArray[np.int32]:
        """[R] int32, columns of each row."""
        return np.array([block.shape[1] for block in self.blocks], np.int32)[self.block]

    def addresses(self) -> NDArray[np.int64]:
        """[R] int64, the address of each row's first element.

        64-bit throughout: a row index times a row stride overflows 32 bits long before memory runs out.
        """
        base = np.array([block.data_ptr() for block in self.blocks], np.int64)
        stride = np.array([block.stride(0) * block.element_size() for block in self.blocks], np.int64)
        return base[self.block] + self.index * stride[self.block]

    def pointers(self, device: torch.device) -> RowPointers:
        """The table as a kernel on ``device`` walks it: as uploaded before, else uploaded now."""
        if self.uploaded is not None:
            return self.uploaded
        address, width = torch.from_numpy(self.addresses()), torch.from_numpy(self.widths())
        return RowPointers(address.to(device), width.to(device))

    def row(self, i: int) -> Tensor:
        """View of row ``i``, [width]."""
        return self.blocks[int(self.block[i])][int(self.index[i])]
