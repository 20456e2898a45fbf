"""What every test shares: where Triton runs, which tests need a GPU, how hypothesis searches."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Workers of pytest-xdist already fill the cores, one process each. Set before torch is imported and reads it.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def has_gpu() -> bool:
    """Whether a CUDA device can be used; False, too, where only the client is installed."""
    try:
        import torch  # noqa: PLC0415  (after the threads are set, and only where it is installed)
    except ImportError:
        return False
    return torch.cuda.is_available()


HAS_GPU = has_gpu()
if not HAS_GPU:
    # Read by Triton when a kernel is decorated, so before any of ours is imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")

# No deadline: the first example of a test may compile a kernel. In CI the same examples every time, so that a failure
# there can be repeated here.
settings.register_profile("local", deadline=None)
settings.register_profile("reproducible", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("reproducible" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips the tests marked ``gpu`` where there is none."""
    if HAS_GPU:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))
