"""How a kernel reads elements of a row that it knows by address.

An address is an int64 in device memory, turned into a pointer in the kernel. That is what lets the rows of several
clients stand in one launch; the price is that nothing is known about its alignment when the kernel is compiled, so
each program looks at its own row and takes one of two paths: 16-byte loads, or element by element.
"""

import triton
import triton.language as tl

from sampler_kernels import layout

TILE = tl.constexpr(layout.TILE)
GROUP = tl.constexpr(layout.GROUP)
GROUPS = tl.constexpr(layout.TILE // layout.GROUP)
"""Groups of a tile: a tile is held as [GROUPS, GROUP], so that a group is a row of it."""

VECTOR = tl.constexpr(8)
"""Elements whose bounds are checked together on the fast path: 16 bytes of a 16-bit dtype, twice that of float32."""


@triton.jit
def pointer_to(address, DTYPE: tl.constexpr):
    """The pointer to a row's first element. Offsets added to it are scaled and summed in 64 bits."""
    return address.to(tl.pointer_type(DTYPE))


@triton.jit
def vector_loads(address, width, tile):
    """Whether a tile can be read 16 bytes at a time: the row is aligned, its end cuts no VECTOR columns."""
    return (address % 16 == 0) & (((tile + 1) * TILE <= width) | (width % VECTOR == 0))


@triton.jit
def tile_columns(tile):
    """[GROUPS, GROUP] int32: the columns of a tile."""
    return tile * TILE + tl.arange(0, GROUPS)[:, None] * GROUP + tl.arange(0, GROUP)[None, :]


@triton.jit
def load_tile(address, width, tile, wanted, DTYPE: tl.constexpr):
    """Some groups of a tile of a row.

    Args:
        address: int64, of the row's first element.
        width: int32, columns of the row.
        tile: int32.
        wanted: bool, or [GROUPS, 1] bool: groups that are read.
        DTYPE: Of the elements.

    Returns:
        [GROUPS, GROUP] float32, -inf past the row's end and in groups that are not wanted.
    """
    columns = tile_columns(tile)
    pointers = pointer_to(address, DTYPE) + columns
    if vector_loads(address, width, tile):
        # Said of the pointers themselves: Triton 3.6 forgets what it knew of an integer that became a pointer.
        aligned = tl.multiple_of(pointers, (1, 16))
        inside = columns // VECTOR < width // VECTOR
        x = tl.load(aligned, mask=inside & wanted, other=-float("inf"))
    else:
        x = tl.load(pointers, mask=(columns < width) & wanted, other=-float("inf"))
    return x.to(tl.float32)


@triton.jit
def load_at(address, columns, inside, DTYPE: tl.constexpr):
    """Single elements of a row, or of one row each; float32, shape of ``columns``, -inf where not ``inside``."""
    return tl.load(pointer_to(address, DTYPE) + columns, mask=inside, other=-float("inf")).to(tl.float32)
