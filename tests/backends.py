"""The backends that every check of a whole step runs on."""

from __future__ import annotations

import pytest

BACKENDS = ["cpu", pytest.param("triton", marks=pytest.mark.gpu)]
"""For ``@pytest.mark.parametrize("backend", BACKENDS)``. Triton's interpreter is far too slow for whole laws, so here
triton means compiled kernels; under the interpreter each kernel is held to its reference instead."""
