"""Packing columns into one buffer and reading them back, on the host, where every byte can be looked at."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sampler_kernels.columns import ALIGNMENT, Layout, download, pack, unpack, upload

ARRAYS = {
    "flag": np.array([True, False, True]),
    "seed": np.array([2**63, 1], np.uint64).view(np.int64),
    "none": np.empty((0, 3), np.int32),
    "half": np.array([1.5, -2.0], np.float64),
    "table": np.arange(6, dtype=np.int32).reshape(2, 3),
    "byte": np.array([7], np.uint8),
    "value": np.array([[0.5]], np.float32),
}


def layout() -> Layout:
    return Layout.of({name: (array.dtype, array.shape) for name, array in ARRAYS.items()})


def test_columns_are_aligned_and_apart() -> None:
    end = 0
    for slot in layout().slots.values():
        assert slot.offset % ALIGNMENT == 0
        assert slot.offset >= end
        end = slot.offset + slot.num_bytes
    assert end <= layout().num_bytes < end + ALIGNMENT


def test_what_is_filled_in_is_what_the_views_show() -> None:
    buffer = torch.full((layout().num_bytes,), 0xEE, dtype=torch.uint8)
    layout().fill(buffer.numpy(), ARRAYS)
    views = layout().views(buffer)
    assert views.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert views[name].numpy().dtype == array.dtype
        np.testing.assert_array_equal(views[name].numpy(), array)


def test_views_share_the_buffer() -> None:
    buffer = torch.zeros(layout().num_bytes, dtype=torch.uint8)
    layout().views(buffer)["table"][1, 2] = 9
    assert layout().arrays(buffer.numpy())["table"][1, 2] == 9


def test_tensors_survive_the_way_down() -> None:
    tensors = {name: torch.from_numpy(array) for name, array in ARRAYS.items()}
    tensors["table"] = torch.arange(6, dtype=torch.int32).reshape(3, 2).T  # not contiguous
    back = unpack(pack(tensors), tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(back[name], tensor.numpy())
        assert back[name].dtype == tensor.numpy().dtype


def test_on_the_cpu_nothing_is_copied() -> None:
    array = np.arange(4, dtype=np.int32)
    tensor = upload({"a": array}, torch.device("cpu"))["a"]
    assert np.shares_memory(download({"a": tensor})["a"], array)


@pytest.mark.gpu
def test_one_copy_up_and_one_down_give_the_same() -> None:
    tensors = upload(ARRAYS, torch.device("cuda"))
    assert len({tensor.untyped_storage().data_ptr() for tensor in tensors.values()}) == 1
    for name, array in download(tensors).items():
        np.testing.assert_array_equal(array, ARRAYS[name])
