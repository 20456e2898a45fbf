"""Neighbours decide which variants of the kernels a step runs; a request must not notice, to the bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from sampler_kernels import LogprobsMode, Method, SamplingParams
from sampler_kernels.batch import CutColumns
from sampler_kernels.cut import kernel as cut_kernel
from sampler_kernels.cut import reference as cut_reference
from sampler_kernels.outcome import Cut, Decision
from tests.kernels.asking import Ask, answers, shares
from tests.kernels.kernel_cases import DEVICE, batches, moved, on_device

NEIGHBOURS: dict[str, dict[str, Any]] = {
    "masked": {"allowed_token_ids": range(0, 4000, 3)},
    "edited": {"logit_bias": {5: 1.0, 4099: -2.0}, "repetition_penalty": 1.3},
    "cut": {"top_k": 50, "top_p": 0.9},
    "block": {"method": Method.BLOCK},
    "strict": {"method": Method.STRICT},
    "lossy": {"method": Method.TYPICAL},
    "acceptance": {"acceptance_probabilities": True, "stop_token_ids": [3]},
}


def ask(seed: int, **given: Any) -> Ask:  # noqa: ANN401
    generator = torch.Generator().manual_seed(seed)
    target = torch.randn(3, 4500, generator=generator).mul_(3).bfloat16()
    draft = target[:2].float().add_(torch.randn(2, 4500, generator=generator)).bfloat16()
    report: dict[str, Any] = {"temperature": 0.8, "top_logprobs": 3, "logprobs_modes": list(LogprobsMode)}
    params = SamplingParams(**(report | given))
    return Ask(target=target, ids=draft.argmax(1).tolist(), draft=draft, params=params, seed=seed)


@pytest.mark.parametrize("own", ["plain", *(NEIGHBOURS if torch.cuda.is_available() else ["cut"])])
def test_a_request_is_the_same_beside_any_other(own: str) -> None:
    one = ask(1, **NEIGHBOURS.get(own, {}))
    alone = shares(answers([one], "triton"))[0]
    for name, given in NEIGHBOURS.items():
        assert shares(answers([ask(2, **given), one], "triton"))[1] == alone, name


@pytest.mark.parametrize("seed", range(4))
def test_cuts_agree_with_the_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch = next(batches(seed, requests=6))
    lengths = batch.draft_lengths.numpy()
    count = len(lengths)
    ints = {
        "stop_ids": np.array([0, 2, 1, 3, 4]),
        "cu_stops": np.array([0, 2, 2, 5]),
        "stop_set": rng.integers(0, 3, count),
        "max_tokens": rng.choice([1, 2, 5, 2**31 - 1], count),
    }
    cuts = CutColumns(**{name: torch.from_numpy(column.astype(np.int32)) for name, column in ints.items()})
    status = torch.from_numpy(rng.choice([0, 0, 1], count).astype(np.int32))
    accepted = torch.from_numpy(np.where(status == 0, rng.integers(0, lengths + 1), 0).astype(np.int32))
    none = torch.zeros(count, dtype=torch.int32)
    decision = Decision(accepted, status, none, none, torch.ones(count, dtype=torch.float64))
    emitted = np.full(len(batch.target), -1, np.int32)
    for r in range(count):
        first = int(batch.cu_num_logits[r])
        emitted[first : first + (int(accepted[r]) + 1 if status[r] == 0 else 0)] = rng.integers(0, 9)

    truth = cut_reference.cut(replace(batch, cuts=cuts), decision, torch.from_numpy(emitted))
    here = replace(on_device(batch), cuts=moved(cuts, DEVICE))
    mine: Cut = moved(cut_kernel.cut(here, moved(decision, DEVICE), torch.from_numpy(emitted).to(DEVICE)), "cpu")
    for name in ("emitted", "kept", "finish_reason"):
        assert torch.equal(getattr(mine, name), getattr(truth, name)), name
