"""Masks and edits in kernels: every element as the contract's table says it, and as the reference has it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from numpy.typing import NDArray

from sampler_kernels import SamplingParams
from sampler_kernels.checks.shapes import host_columns
from sampler_kernels.planning.plan import plan
from sampler_kernels.processors.kernel import processors
from sampler_kernels.stats.kernel import stats
from sampler_kernels.topk_logprobs.kernel import topk_logprobs
from tests.kernels.kernel_cases import DEVICE
from tests.kernels.processing import Request, make_step, processed_batch, true_row
from tests.kernels.test_processors import random_request

ROUNDS = 25 if torch.cuda.is_available() else 2


def rows_in_kernels(requests: list[Request]) -> NDArray[np.float32]:
    """[N, V]: every element, looked up one by one."""
    step = make_step(requests)
    step = replace(step, target_logits=step.target_logits.to(DEVICE))
    planned = plan(step, host_columns(step), DEVICE)
    batch = replace(planned.batch, target=processors(planned.batch))
    count, vocab = len(batch.target), batch.vocab_size
    emitted = torch.zeros(count, dtype=torch.int32, device=DEVICE)
    every = torch.arange(vocab, dtype=torch.int32, device=DEVICE).expand(count, vocab).contiguous()
    of_rows = stats(batch.target, planned.target_temperature, raw=False)
    numbers = topk_logprobs(batch, of_rows, emitted, raw=False, top_n=0, ranks=False, chosen_ids=every)
    looked_up = numbers.chosen_logits.cpu().numpy()
    # A tile, read whole, must see the same.
    np.testing.assert_array_equal(of_rows.tile_max.cpu().numpy().max(1), looked_up.max(1))
    return looked_up


@pytest.mark.parametrize("vocab", [1, 2, 7, 33, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_random_batches_bit_for_bit(vocab: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(vocab)
    for _ in range(ROUNDS):
        requests = [random_request(rng, vocab, dtype) for _ in range(int(rng.integers(1, 5)))]
        truth = np.stack([true_row(r, j) for r in requests for j in range(len(r.target))])
        np.testing.assert_array_equal(rows_in_kernels(requests), truth)


def test_edits_are_those_of_the_reference() -> None:
    rng = np.random.default_rng(5)
    requests = [random_request(rng, 300) for _ in range(12)]
    true_batch = processed_batch(requests)
    step = make_step(requests)
    step = replace(step, target_logits=step.target_logits.to(DEVICE))
    mine = processors(plan(step, host_columns(step), DEVICE).batch)
    assert true_batch.target.processing is not None
    assert true_batch.target.processing.edits is not None
    assert mine.processing is not None
    assert mine.processing.edits is not None
    which = torch.arange(len(mine))
    truth, found = true_batch.target.processing.edits.of(which), mine.processing.edits.of(which)
    for name in ("request", "ids", "keys", "cu", "first", "values"):
        torch.testing.assert_close(getattr(found, name), getattr(truth, name), rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("how", ["mask", "bad word", "min tokens", "bias", "penalty"])
def test_a_bad_element_is_seen_whatever_becomes_of_it(value: float, how: str) -> None:
    logits = torch.zeros(1, 300)
    logits[0, 7] = value
    given = {
        "mask": {"allowed_token_ids": [i for i in range(300) if i != 7]},
        "bad word": {"bad_words": [[7]]},
        "min tokens": {"stop_token_ids": [7], "min_tokens": 1},
        "bias": {"logit_bias": {7: -5.0}},
        "penalty": {"repetition_penalty": 2.0, "frequency_penalty": 1.0},
    }[how]
    request = Request(logits, (), SamplingParams(**given), output=[7] if how == "penalty" else [])  # type: ignore[arg-type]
    step = make_step([request])
    step = replace(step, target_logits=step.target_logits.to(DEVICE))
    planned = plan(step, host_columns(step), DEVICE)
    assert stats(processors(planned.batch), planned.target_temperature, raw=False).tile_max.isnan().all()
