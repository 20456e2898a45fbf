"""numpy arrays -> ``Tensor`` fields, dense, with the elements still in the caller's memory."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sampler_client.arrays import BFLOAT16, little_endian
from sampler_client.codec.wire import Chunks, Slide, field_prefix
from sampler_client.v1 import sampler_pb2 as pb

_DTYPES = {
    np.dtype(np.float32): pb.DTYPE_FLOAT32,
    np.dtype(np.float16): pb.DTYPE_FLOAT16,
    BFLOAT16: pb.DTYPE_BFLOAT16,
    np.dtype(np.float64): pb.DTYPE_FLOAT64,
    np.dtype(np.int32): pb.DTYPE_INT32,
    np.dtype(np.int64): pb.DTYPE_INT64,
}

_LARGE = 1 << 16
"""Bytes from which an array is put where the server can use it in place."""


def add_tensor(out: Chunks, number: int, array: NDArray[Any]) -> None:
    """Appends a field that holds a ``Tensor`` with inline bytes.

    Args:
        out: The message that has the field.
        number: Of the field.
        array: One or two dimensions, last stride one element; rows with gaps between them are sent without the gaps.
    """
    elements = little_endian(array)
    if elements.nbytes >= _LARGE and elements.flags.c_contiguous:
        outer, slide, inner = _sliding_prefix(number, array.dtype, array.shape)
        out.add(outer)
        out.add_slide(slide, inner, elements)
        return
    out.add(_prefix(number, array.dtype, array.shape))
    if elements.flags.c_contiguous:
        out.add_array(elements)
    else:
        for row in elements:
            out.add_array(row)


@lru_cache(maxsize=1024)
def _prefix(number: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """All of the field that stands before the elements. An engine's tensors have few shapes, so it is remembered."""
    nbytes = math.prod(shape) * dtype.itemsize
    head = pb.Tensor(dtype=_DTYPES[dtype], shape=shape).SerializeToString()
    head += field_prefix(pb.Tensor.INLINE_BYTES_FIELD_NUMBER, nbytes)
    return field_prefix(number, len(head) + nbytes) + head


@lru_cache(maxsize=1024)
def _sliding_prefix(number: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[bytes, Slide, bytes]:
    """The same for an array to be moved into place, with the dtype as the field that makes room."""
    nbytes = math.prod(shape) * dtype.itemsize
    head = pb.Tensor(shape=shape).SerializeToString()
    inner = field_prefix(pb.Tensor.INLINE_BYTES_FIELD_NUMBER, nbytes)
    outer = field_prefix(number, len(head) + Slide.SIZE + len(inner) + nbytes) + head
    return outer, Slide(pb.Tensor.DTYPE_FIELD_NUMBER, _DTYPES[dtype], len(inner)), inner
