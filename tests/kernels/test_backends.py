"""Which backend runs, what is said where one cannot, and what importing the core brings along."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from sampler_kernels import BackendUnavailable
from sampler_kernels.backends import _triton, backend


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(BackendUnavailable, match="no backend 'cuda'; there are auto, cpu, triton"):
        backend("cuda")


def test_triton_without_the_package_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(BackendUnavailable, match="needs the package triton"):
        _triton.__wrapped__()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_triton_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(BackendUnavailable, match="needs an NVIDIA GPU"):
        _triton.__wrapped__()


def test_the_core_imports_neither_grpc_nor_triton() -> None:
    loaded = (
        "import sys, sampler_kernels; print([name for name in ('grpc', 'triton', 'google') if name in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=120)
    assert process.stdout.strip() == "[]"
