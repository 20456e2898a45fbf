"""How a row of logits is cut up. Constants of the contract, never tuned by batch size or device.

The draw walks a row tile by tile and then token by token with one and the same uniform, so the tile size and the
order of tiles are part of what makes a seed mean the same tokens everywhere: changing them changes bits.
"""

from typing import Final

TILE: Final = 4096
"""Columns a tile: the unit of the partial sums, and of the second level of a draw."""

GROUP: Final = 128
"""Columns a group: the unit whose maximum is kept, so that top-k and ranks read few candidates. Divides TILE."""

MAX_DRAFT_TOKENS: Final = 128
"""The most draft tokens one request may bring to one step."""

MAX_TOP_LOGPROBS: Final = 256
"""The most entries of a row that may be reported beside an emitted token."""


def num_tiles(width: int) -> int:
    """Tiles in a row of ``width`` columns; the last one may be short."""
    return -(-width // TILE)


def num_groups(width: int) -> int:
    """Groups in a row of ``width`` columns; the last one may be short."""
    return -(-width // GROUP)
