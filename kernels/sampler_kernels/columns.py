"""Named arrays laid end to end in one buffer, so that a step crosses to the device and back in one copy each way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

ALIGNMENT: Final = 16
"""Bytes that every column's offset is a multiple of: the widest load a kernel makes of it."""


@dataclass(frozen=True)
class Slot:
    """Where a column lies: ``shape`` elements of ``dtype`` from byte ``offset`` on."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def num_bytes(self) -> int:
        """Bytes of the elements, without padding."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Layout:
    """The order of columns in a buffer.

    Attributes:
        slots: The columns by name, in order.
        num_bytes: Length of the buffer, a multiple of ``ALIGNMENT``.
    """

    slots: Mapping[str, Slot]
    num_bytes: int

    @staticmethod
    def of(columns: Mapping[str, tuple[DTypeLike, tuple[int, ...]]]) -> Layout:
        """A layout for columns given as (dtype, shape) by name."""
        slots, end = {}, 0
        for name, (dtype, shape) in columns.items():
            slot = Slot(end, tuple(shape), np.dtype(dtype))
            slots[name] = slot
            end += -(-slot.num_bytes // ALIGNMENT) * ALIGNMENT
        return Layout(slots, end)

    def views(self, buffer: Tensor) -> dict[str, Tensor]:
        """Each column as a typed view into ``buffer``, [>= num_bytes] uint8 on any device, aligned at its start."""
        return {
            name: buffer[slot.offset : slot.offset + slot.num_bytes].view(_torch_dtype(slot.dtype)).view(slot.shape)
            for name, slot in self.slots.items()
        }

    def fill(self, buffer: NDArray[np.uint8], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write each column into its place."""
        for name, view in self.arrays(buffer).items():
            view[...] = arrays[name]

    def arrays(self, buffer: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """The same for a buffer on the host."""
        return {
            name: buffer[slot.offset : slot.offset + slot.num_bytes].view(slot.dtype).reshape(slot.shape)
            for name, slot in self.slots.items()
        }


def upload(arrays: Mapping[str, NDArray[Any]], device: torch.device) -> dict[str, Tensor]:
    """Arrays as tensors on ``device``: copied there in one go, or sharing memory if the device is the CPU."""
    if device.type == "cpu":
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    layout = Layout.of({name: (array.dtype, array.shape) for name, array in arrays.items()})
    # Pinned, so that the copy is queued like any launch and the host goes on.
    staging = torch.empty(layout.num_bytes, dtype=torch.uint8, pin_memory=True)
    layout.fill(staging.numpy(), arrays)
    return layout.views(staging.to(device, non_blocking=True))


def download(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Tensors of one device as arrays on the host: copied in one go, or sharing memory if they lie on the CPU."""
    if all(tensor.device.type == "cpu" for tensor in tensors.values()):
        return {name: tensor.numpy() for name, tensor in tensors.items()}
    return unpack(pack(tensors).cpu(), tensors)


def pack(tensors: Mapping[str, Tensor]) -> Tensor:
    """[n] uint8: tensors of one device end to end, the widest elements first, so that none needs padding before it."""
    return torch.cat([tensor.contiguous().view(-1).view(torch.uint8) for _, tensor in _widest_first(tensors)])


def unpack(packed: Tensor, tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Each of ``tensors`` as an array into ``packed``, [n] uint8 on the host, which :func:`pack` made of them."""
    arrays, start, buffer = {}, 0, packed.numpy()
    for name, tensor in _widest_first(tensors):
        end = start + tensor.numel() * tensor.element_size()
        arrays[name] = buffer[start:end].view(_numpy_dtype(tensor.dtype)).reshape(tensor.shape)
        start = end
    return arrays


def _widest_first(tensors: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
    return sorted(tensors.items(), key=lambda item: -item[1].element_size())


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype
