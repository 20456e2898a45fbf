"""Rules about single tensors: layout, dtype, extents."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sampler_kernels.checks.refusing import refusal
from sampler_kernels.refusal import Reason

ID_DTYPES = (torch.int32, torch.int64)
"""Dtypes that token ids may come in."""


def check_matrix(tensor: Tensor, field: str, dtypes: Sequence[torch.dtype]) -> None:
    """Refuse what is not a strided matrix with unit last stride and one of ``dtypes``.

    Raises:
        StepRefused: LAYOUT_UNSUPPORTED or DTYPE_UNSUPPORTED.
    """
    _check_dense(tensor, field, 2)
    check_dtype(tensor, field, dtypes)
    # Where nothing is read a stride means nothing: empty arrays from numpy come with strides of 0.
    if tensor.numel() and tensor.shape[1] > 1 and tensor.stride(1) != 1:
        what = f"{field} has last stride {tensor.stride(1)}; it must be 1 (the row stride is free)"
        raise refusal(Reason.LAYOUT_UNSUPPORTED, what, field=field)


def check_vector(tensor: Tensor, field: str, dtypes: Sequence[torch.dtype], length: int, what_for: str) -> None:
    """Refuse what is not a vector of ``length`` elements of one of ``dtypes``.

    Raises:
        StepRefused: LAYOUT_UNSUPPORTED, DTYPE_UNSUPPORTED or SHAPE_MISMATCH.
    """
    _check_dense(tensor, field, 1)
    check_dtype(tensor, field, dtypes)
    check_count(len(tensor), field, length, what_for)


def check_dtype(tensor: Tensor, field: str, dtypes: Sequence[torch.dtype]) -> None:
    """Refuse a tensor of a dtype that is not listed.

    Raises:
        StepRefused: DTYPE_UNSUPPORTED.
    """
    if tensor.dtype not in dtypes:
        legal = " or ".join(_name(dtype) for dtype in dtypes)
        what = f"{field} is of dtype {_name(tensor.dtype)}; it must be {legal}"
        raise refusal(Reason.DTYPE_UNSUPPORTED, what, field=field)


def check_count(count: int, field: str, wanted: int, what_for: str) -> None:
    """Refuse a number of elements or rows that the rest of the step contradicts.

    Raises:
        StepRefused: SHAPE_MISMATCH.
    """
    if count != wanted:
        what = f"{field} has {count} entries; it must have {wanted}, {what_for}"
        raise refusal(Reason.SHAPE_MISMATCH, what, field=field)


def check_place(tensor: Tensor, field: str, device: torch.device) -> None:
    """Refuse a tensor that lies elsewhere than the target logits do.

    Raises:
        StepRefused: LAYOUT_UNSUPPORTED.
    """
    if tensor.device != device:
        what = f"{field} lies on {tensor.device}; it must lie on {device}, as target_logits do"
        raise refusal(Reason.LAYOUT_UNSUPPORTED, what, field=field)


def _check_dense(tensor: Tensor, field: str, dimensions: int) -> None:
    if tensor.layout is not torch.strided or tensor.ndim != dimensions:
        kind = "a matrix" if dimensions == 2 else "a vector"
        what = f"{field} has shape {tuple(tensor.shape)} and layout {tensor.layout}; it must be {kind}, strided"
        raise refusal(Reason.LAYOUT_UNSUPPORTED, what, field=field)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
