"""A tensor on the wire as a torch tensor over the same bytes, copied only if they are not aligned."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels.refusal import Reason as CoreReason
from sampler_service.codec.lift import Payloads
from sampler_service.errors import Reason, refuse

TORCH_DTYPE: Final[dict[int, torch.dtype]] = {
    pb.DTYPE_FLOAT32: torch.float32,
    pb.DTYPE_FLOAT16: torch.float16,
    pb.DTYPE_BFLOAT16: torch.bfloat16,
    pb.DTYPE_FLOAT64: torch.float64,
    pb.DTYPE_INT32: torch.int32,
    pb.DTYPE_INT64: torch.int64,
}

LOGITS: Final = (pb.DTYPE_FLOAT32, pb.DTYPE_FLOAT16, pb.DTYPE_BFLOAT16)
IDS: Final = (pb.DTYPE_INT32, pb.DTYPE_INT64)
WORDS: Final = (pb.DTYPE_INT32,)
DOUBLES: Final = (pb.DTYPE_FLOAT64,)

_ADDRESSABLE: Final = 1 << 63

with warnings.catch_warnings():
    # torch says once per process that bytes are not writable. Nothing here writes: let it say so now, unheard.
    warnings.simplefilter("ignore")
    torch.frombuffer(b"\0", dtype=torch.uint8)


class WireTensor(NamedTuple):
    """A checked tensor of a message.

    Attributes:
        data: The elements; for a tensor in a region, zeros of the same shape that occupy one row.
        in_region: Whether the elements lie in a region, where this server cannot read them.
    """

    data: Tensor
    in_region: bool


class TensorReader:
    """Reads the tensors of one message.

    Args:
        payloads: Where their bytes are, if they were taken out of the message.
        parsed_bytes: What was parsed: the size of the message without those.

    Attributes:
        parsed_bytes: As above.
    """

    def __init__(self, payloads: Payloads | None, parsed_bytes: int) -> None:
        self.parsed_bytes = parsed_bytes
        self._payloads = payloads

    def __call__(
        self,
        message: pb.Tensor,
        field: str,
        dtypes: Sequence[int],
        ndims: Sequence[int],
        max_columns: int | None = None,
    ) -> WireTensor:
        """The tensor of a message, with every count checked against every other.

        Args:
            message: As parsed.
            field: Its path from the step on, for refusals.
            dtypes: Wire dtypes that the field takes; the first is its default.
            ndims: Numbers of dimensions that the field takes.
            max_columns: The server's limit on the columns of a matrix.

        Raises:
            Refusal: ENUM_UNKNOWN, DTYPE_UNSUPPORTED, LIMIT_EXCEEDED or one of the TENSOR_ reasons.
        """
        dtype = _dtype(message.dtype, field, dtypes)
        shape = tuple(message.shape)
        rows, columns, stride = _layout(shape, message.row_stride, field, ndims)
        if max_columns is not None and len(shape) == 2 and columns > max_columns:
            what = f"{field} has {columns} columns; this server takes at most {max_columns}"
            raise refuse(Reason.LIMIT_EXCEEDED, what, field=field)
        span = (rows - 1) * stride + columns if rows and columns else 0
        if span * dtype.itemsize >= _ADDRESSABLE:
            what = f"{field} spans {span} elements of {dtype.itemsize} bytes; it must stay below 2^63 bytes"
            raise refuse(Reason.TENSOR_SHAPE_INVALID, what, field=field)
        source = message.WhichOneof("source")
        if source == "region":
            _check_slice(message.region, field, dtype)
            one_row = torch.zeros(columns if len(shape) == 2 else 1, dtype=dtype)
            return WireTensor(one_row.expand(shape), in_region=True)
        data = self.payload(message.inline_bytes) if source else b""
        if len(data) != span * dtype.itemsize:
            given = f"{len(data)} inline bytes" if source else "no data"
            strided = f" with row stride {stride}" if len(shape) == 2 and stride != columns else ""
            layout = f"shape {list(shape)}{strided} of {_name(dtype)}"
            what = f"{field} has {given}; {layout} takes {span * dtype.itemsize} bytes"
            raise refuse(Reason.TENSOR_LENGTH_MISMATCH, what, field=field)
        if not span:
            return WireTensor(torch.empty(shape, dtype=dtype), in_region=False)
        flat = elements(data, dtype)
        return WireTensor(flat if len(shape) == 1 else flat.as_strided(shape, (stride, 1)), in_region=False)

    def payload(self, inline_bytes: bytes) -> bytes | memoryview:
        """The elements of a tensor whose message has these ``inline_bytes``."""
        return inline_bytes if self._payloads is None else self._payloads.of(inline_bytes)


def elements(data: bytes | memoryview, dtype: torch.dtype) -> Tensor:
    """A vector over the bytes, or over a copy where they lie askew: compiled loops may count on aligned elements."""
    flat = torch.frombuffer(data, dtype=dtype)
    if flat.data_ptr() % dtype.itemsize:
        return torch.frombuffer(bytearray(data), dtype=dtype)
    return flat


def _dtype(number: int, field: str, dtypes: Sequence[int]) -> torch.dtype:
    number = number or dtypes[0]
    if number not in dtypes:
        legal = " or ".join(_name(TORCH_DTYPE[n]) for n in dtypes)
        if number not in TORCH_DTYPE:
            what = f"{field}.dtype is {number}, which the contract does not list; it must be {legal}"
            raise refuse(Reason.ENUM_UNKNOWN, what, field=f"{field}.dtype")
        what = f"{field} is of dtype {_name(TORCH_DTYPE[number])}; it must be {legal}"
        raise refuse(CoreReason.DTYPE_UNSUPPORTED, what, field=f"{field}.dtype")
    return TORCH_DTYPE[number]


def _layout(shape: tuple[int, ...], row_stride: int, field: str, ndims: Sequence[int]) -> tuple[int, int, int]:
    """Rows, columns and row stride in elements; a vector is one row."""
    if len(shape) not in ndims:
        legal = " or ".join(str(n) for n in ndims)
        what = f"{field}.shape has {len(shape)} extents; it must have {legal}"
        raise refuse(Reason.TENSOR_SHAPE_INVALID, what, field=f"{field}.shape")
    if min(shape) < 0:
        what = f"{field}.shape is {list(shape)}; no extent may be negative"
        raise refuse(Reason.TENSOR_SHAPE_INVALID, what, field=f"{field}.shape")
    if shape[0] * shape[-1] >= _ADDRESSABLE:
        what = f"{field}.shape is {list(shape)}; it must hold fewer than 2^63 elements"
        raise refuse(Reason.TENSOR_SHAPE_INVALID, what, field=f"{field}.shape")
    if len(shape) == 1:
        if row_stride:
            what = f"{field}.row_stride is {row_stride}; it must be 0 for a tensor of one dimension"
            raise refuse(Reason.TENSOR_STRIDE_INVALID, what, field=f"{field}.row_stride")
        return 1, shape[0], shape[0]
    if row_stride and row_stride < shape[1]:
        what = f"{field}.row_stride is {row_stride}; it must be 0, or at least the {shape[1]} columns of a row"
        raise refuse(Reason.TENSOR_STRIDE_INVALID, what, field=f"{field}.row_stride")
    return shape[0], shape[1], row_stride or shape[1]


def _check_slice(region: pb.RegionSlice, field: str, dtype: torch.dtype) -> None:
    if len(region.region_id) != 16:
        what = f"{field}.region.region_id has {len(region.region_id)} bytes; a region id has 16"
        raise refuse(Reason.ID_LENGTH_INVALID, what, field=f"{field}.region.region_id")
    if region.offset_bytes % dtype.itemsize:
        what = f"{field}.region.offset_bytes is {region.offset_bytes}; it must be a multiple of {dtype.itemsize}"
        raise refuse(Reason.TENSOR_OFFSET_INVALID, what, field=f"{field}.region.offset_bytes")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
