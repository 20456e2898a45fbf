"""Uniforms in a kernel. Triton's Philox is the Philox4x32-10 of the paper; the words and the counter are ours."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from sampler_kernels.device.compile import kernel
from sampler_kernels.philox.reference import Purpose

ACCEPT = tl.constexpr(int(Purpose.ACCEPT))
DRAW = tl.constexpr(int(Purpose.DRAW))

_BLOCK = 128


@triton.jit
def uniform_of(seed, position, purpose, s):
    """float64 in (0, 1) for int64 seed and position, int32 purpose and s; any shapes that broadcast.

    Words 0 and 1 give 52 bits, and a half keeps the result off both ends: each step is exact in float64.
    """
    low = (position & 0xFFFFFFFF).to(tl.uint32)
    high = ((position >> 32) & 0xFFFFFFFF).to(tl.uint32)
    third = low * 0 + tl.cast(purpose, tl.uint32)
    fourth = low * 0 + tl.cast(s, tl.uint32)
    w0, w1, _, _ = tl.philox(seed, low, high, third, fourth)
    bits = (w0.to(tl.int64) << 20) | (w1.to(tl.int64) >> 12)
    return (bits.to(tl.float64) + 0.5) * 2.220446049250313e-16  # 2^-52


@kernel
def _uniform_kernel(seed_ptr, position_ptr, s_ptr, out_ptr, count, purpose, BLOCK: tl.constexpr):
    """One uniform an element.

    seed_ptr, position_ptr, s_ptr: [n] int64. out_ptr: [n] float64. The grid walks blocks of elements; the block is
    one warp's worth four times over, since each element is some 80 integer operations and no memory to speak of.
    """
    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = element < count
    seed = tl.load(seed_ptr + element, mask=inside, other=0)
    position = tl.load(position_ptr + element, mask=inside, other=0)
    s = tl.load(s_ptr + element, mask=inside, other=0)
    tl.store(out_ptr + element, uniform_of(seed, position, purpose, s), mask=inside)


def uniform(seed: Tensor, position: Tensor, purpose: Purpose, s: Tensor) -> Tensor:
    """One uniform for each decision. Arguments and result as :func:`sampler_kernels.philox.reference.uniform`."""
    count = seed.numel()
    out = torch.empty(count, dtype=torch.float64, device=seed.device)
    if count:
        grid = (triton.cdiv(count, _BLOCK),)
        s = s.expand_as(position).contiguous()
        _uniform_kernel[grid](seed, position, s, out, count, int(purpose), BLOCK=_BLOCK)
    return out
