"""Names for the array types that the engine's parts exchange."""

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words64 = NDArray[np.uint64]
