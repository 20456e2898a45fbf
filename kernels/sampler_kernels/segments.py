"""Ranges laid end to end, so that lists of different lengths are handled without a loop over their owners."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def spread(start: Ints, length: Ints) -> tuple[Ints, Ints]:
    """N ranges end to end.

    Args:
        start: [n] first number of each range.
        length: [n] how many numbers it has; none negative.

    Returns:
        [sum of lengths] which range each number belongs to, and the numbers.
    """
    owner = np.repeat(np.arange(len(start)), length)
    before = np.cumsum(length) - length
    return owner, np.arange(len(owner)) + (start - before)[owner]
