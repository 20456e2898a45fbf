"""numpy arrays -> ``Tensor`` messages, dense, with the elements still in the caller's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sampler_client.arrays import BFLOAT16, little_endian
from sampler_client.codec.wire import Chunks
from sampler_client.v1 import sampler_pb2 as pb

_DTYPES = {
    np.dtype(np.float32): pb.DTYPE_FLOAT32,
    np.dtype(np.float16): pb.DTYPE_FLOAT16,
    BFLOAT16: pb.DTYPE_BFLOAT16,
    np.dtype(np.float64): pb.DTYPE_FLOAT64,
    np.dtype(np.int32): pb.DTYPE_INT32,
    np.dtype(np.int64): pb.DTYPE_INT64,
}


def tensor(array: NDArray[Any]) -> Chunks:
    """A ``Tensor`` with inline bytes.

    Args:
        array: One or two dimensions, last stride one element; rows with gaps between them are sent without the gaps.
    """
    out = Chunks(pb.Tensor(dtype=_DTYPES[array.dtype], shape=array.shape).SerializeToString())
    content = Chunks()
    elements = little_endian(array)
    if elements.flags.c_contiguous:
        content.add_array(elements)
    else:
        for row in elements:
            content.add_array(row)
    out.add_field(pb.Tensor.INLINE_BYTES_FIELD_NUMBER, content)
    return out
