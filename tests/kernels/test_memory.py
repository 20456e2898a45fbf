"""The step takes next to no memory beside its inputs: whole rows are never stored, let alone all of them."""

from __future__ import annotations

import pytest

from benchmarks.cpu_step import VOCAB, make_case
from benchmarks.memory import peak_bytes
from sampler_kernels.verify import verify


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
def test_one_request_takes_at_most_two_float32_rows(noise: float) -> None:
    """Whether every draft token stands, some, or none."""
    case = make_case(1, noise, 0)
    assert peak_bytes(lambda: verify(case.step, backend="cpu")) <= 2 * 4 * VOCAB


def test_a_batch_takes_less_than_a_tenth_of_its_inputs() -> None:
    case = make_case(8, 0.5, 0)
    assert peak_bytes(lambda: verify(case.step, backend="cpu")) < case.input_bytes / 10
