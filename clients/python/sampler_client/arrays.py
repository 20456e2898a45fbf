"""Whatever array an engine holds, seen as numpy without a copy where that is possible."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from sampler_client.errors import invalid
from sampler_client.step import Array

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
LOGITS_DTYPES = (np.dtype(np.float32), np.dtype(np.float16), BFLOAT16)

_DLPACK_CPU = 1
_DLPACK_UINT = 1
_DLPACK_BFLOAT = 4


class _DLTensor(ctypes.Structure):
    """The head of an unversioned DLPack capsule (dlpack.h, DLTensor), as far as the element type."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype_code", ctypes.c_uint8),
        ("dtype_bits", ctypes.c_uint8),
        ("dtype_lanes", ctypes.c_uint16),
    )


class _Exported:
    """A capsule that is already there, in the form that ``np.from_dlpack`` takes."""

    def __init__(self, capsule: Any) -> None:  # noqa: ANN401  (PyCapsule has no name before Python 3.13)
        self._capsule = capsule

    def __dlpack__(self, **_: object) -> Any:  # noqa: ANN401
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU, 0


def as_numpy(value: Array, field: str) -> NDArray[Any]:
    """Sees an array as numpy; shares memory with numpy arrays and DLPack exporters.

    Args:
        value: A numpy array, an exporter of DLPack on the CPU (bfloat16 included), or nested lists of numbers.
        field: Its name, for errors.

    Raises:
        InvalidStep: It lies on another device, cannot be exported, or is no array.
    """
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value, field)
    try:
        return np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid("SHAPE_MISMATCH", field, f"{field} is not an array: {error}") from error


def logits(value: Array, field: str) -> NDArray[Any]:
    """A matrix of logits as numpy.

    Returns:
        [rows, columns] float32, float16 or bfloat16 (``ml_dtypes``), last stride one element, row stride free. Lists
        become float32; an array of another dtype is refused, because rounding it is the engine's decision.

    Raises:
        InvalidStep: Not two-dimensional, or of another dtype.
    """
    array = as_numpy(value, field)
    if not (isinstance(value, np.ndarray) or hasattr(value, "__dlpack_device__")) and array.dtype.kind in "fiu":
        array = array.astype(np.float32)
    if array.ndim != 2:
        raise invalid("SHAPE_MISMATCH", field, f"{field} has {array.ndim} dimensions, expected [rows, columns]")
    if array.dtype not in LOGITS_DTYPES:
        native = array.dtype.newbyteorder("=")
        if native not in LOGITS_DTYPES:
            wrong = f"{field} is {array.dtype}, expected float32, float16 or bfloat16"
            raise invalid("DTYPE_UNSUPPORTED", field, wrong)
        array = array.astype(native)
    if array.shape[1] > 1 and array.strides[1] != array.itemsize:
        return np.ascontiguousarray(array)
    return array


def integers(value: Array, field: str, *, ndim: tuple[int, ...] = (1,)) -> NDArray[Any]:
    """Ids or counts as a dense numpy array.

    Returns:
        int32 or int64, C order; other integer types become int64.

    Raises:
        InvalidStep: Other than integers, a number beyond int64, or another number of dimensions than ``ndim``.
    """
    array = as_numpy(value, field)
    if array.ndim not in ndim:
        expected = " or ".join(map(str, ndim))
        raise invalid("SHAPE_MISMATCH", field, f"{field} has {array.ndim} dimensions, expected {expected}")
    if array.size == 0:
        return np.zeros(array.shape, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise invalid("DTYPE_UNSUPPORTED", field, f"{field} is {array.dtype}, expected int32 or int64")
    if array.dtype.kind == "u" and int(array.max()) > np.iinfo(np.int64).max:
        raise invalid("TOKEN_ID_OUT_OF_RANGE", field, f"{field} holds {int(array.max())}, expected at most 2^63 - 1")
    keep = np.int32 if array.dtype.kind == "i" and array.dtype.itemsize == 4 else np.int64
    return np.ascontiguousarray(array, dtype=keep)


def doubles(value: Array, field: str) -> NDArray[np.float64]:
    """A column of numbers as a dense float64 array.

    Raises:
        InvalidStep: Other than numbers, or more than one dimension.
    """
    array = as_numpy(value, field)
    if array.ndim != 1:
        raise invalid("SHAPE_MISMATCH", field, f"{field} has {array.ndim} dimensions, expected 1")
    if array.size and array.dtype.kind not in "fiu":
        raise invalid("DTYPE_UNSUPPORTED", field, f"{field} is {array.dtype}, expected float64")
    return np.ascontiguousarray(array, dtype=np.float64)


def _from_dlpack(value: Any, field: str) -> NDArray[Any]:  # noqa: ANN401  (an array of any library)
    """Sees a DLPack exporter's memory as numpy; numpy cannot import bfloat16, so that travels as uint16 bits."""
    device = int(value.__dlpack_device__()[0])
    if device != _DLPACK_CPU:
        raise invalid(
            "LAYOUT_UNSUPPORTED", field, f"{field} lies on DLPack device type {device}, expected 1 (host memory)"
        )
    try:
        capsule = value.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        head = _DLTensor.from_address(pointer(capsule, b"dltensor"))
        is_bfloat16 = head.dtype_code == _DLPACK_BFLOAT and head.dtype_bits == 16
        if is_bfloat16:
            # The exporter's deleter does not look at the element type, and the capsule is ours alone.
            head.dtype_code = _DLPACK_UINT
        array = np.from_dlpack(_Exported(capsule))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise invalid("LAYOUT_UNSUPPORTED", field, f"{field} cannot be exported by DLPack: {error}") from error
    return array.view(BFLOAT16) if is_bfloat16 else array


def little_endian(array: NDArray[Any]) -> NDArray[Any]:
    """The array as the wire wants its bytes, in a type that has a buffer (bfloat16 has none)."""
    if array.dtype == BFLOAT16:
        array = array.view(np.uint16)
    return array.byteswap() if sys.byteorder == "big" else array
