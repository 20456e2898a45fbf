"""How kernels are compiled: once for each row dtype and bucket, never again because a count or an offset changed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TRITON_DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
"""Element type that a row's address is read as."""


def kernel(function: Callable[..., Any]) -> Any:
    """``triton.jit`` for a kernel that is launched, with no argument specialised.

    Triton by default compiles anew for an integer that is 1 or a multiple of 16, and for a pointer that is not
    16-byte aligned. Counts, strides and offsets into staging buffers change from step to step, and a recompilation
    in service costs more than all of the hints gain: rows are reached by address, and say themselves whether they
    are aligned. Variants come from constexpr arguments alone.
    """
    names = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if "constexpr" not in str(parameter.annotation)
    ]
    return triton.jit(do_not_specialize=names, do_not_specialize_on_alignment=names)(function)


def power_of_two(count: int) -> int:
    """The smallest power of two that is at least ``count`` and at least 1: the sizes that Triton's blocks come in."""
    return 1 << max(0, count - 1).bit_length()


def placeholder(like: Tensor, dtype: torch.dtype) -> Tensor:
    """Something to point at where a kernel gets a pointer that it will not follow; takes no memory."""
    return torch.empty(0, dtype=dtype, device=like.device)
