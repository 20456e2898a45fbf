"""The four modes of logprobs, several at once, raw and processed, on rows that are processed or not."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sampler_kernels import LogprobsMode, ModeLogprobs, SamplingParams, verify
from tests.kernels.processing import F32, Request, make_step, true_kept, true_row

MODES = list(LogprobsMode)
F64 = NDArray[np.float64]

PROCESSED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "temperature": {"temperature": 0.5},
    "greedy": {"temperature": 0.0, "top_k": 2},
    "filters": {"temperature": 0.8, "top_k": 9, "top_p": 0.9},
    "filters at 1": {"top_p": 0.6},
    "edits": {"logit_bias": {3: 4.0, 5: -2.0}, "frequency_penalty": 0.5},
    "mask": {"allowed_token_ids": list(range(0, 40, 3)), "temperature": 2.0},
    "all": {"allowed_token_ids": list(range(30)), "logit_bias": {3: 2.0}, "min_p": 0.01, "temperature": 1.7},
}


def true_values(request: Request, j: int, mode: LogprobsMode) -> tuple[F64, F32]:
    """[V] values of a mode in fp64, and [V] what orders them."""
    if mode.raw:
        key, temperature = request.target[j].float().numpy(), 1.0
    else:
        x, temperature = true_row(request, j), request.params.temperature
        key = np.full(len(x), -np.inf, np.float32)
        kept = true_kept(x, request.params) if temperature > 0 else np.flatnonzero(x > -np.inf)
        key[kept], temperature = x[kept], temperature or 1.0
    values = key.astype(np.float64) / temperature
    if mode.normalised:
        values = values - (values.max() + np.log(np.exp(values - values.max()).sum()))
    return values, key


def check(found: ModeLogprobs, m: int, truth: tuple[F64, F32], token: int, params: SamplingParams) -> None:
    """Everything that one mode says of the m-th token."""
    values, key = truth
    assert found.values[m] == pytest.approx(values[token], abs=1e-4)
    assert found.ranks[m] == (key >= key[token]).sum()
    order = [i for i in np.argsort(-key, kind="stable")[: params.top_logprobs] if key[i] > -np.inf]
    top = slice(found.cu_top[m], found.cu_top[m + 1])
    assert found.top_ids[top].tolist() == order
    np.testing.assert_allclose(found.top_values[top], values[order], atol=1e-4)
    chosen = slice(found.cu_chosen[m], found.cu_chosen[m + 1])
    assert found.chosen_ids[chosen].tolist() == list(params.logprob_token_ids)
    np.testing.assert_allclose(found.chosen_values[chosen], values[list(params.logprob_token_ids)], atol=1e-4)


def requests_of(modes: Sequence[Sequence[LogprobsMode]], width: int = 40, dtype: Any = torch.float32) -> list[Request]:  # noqa: ANN401
    generator = torch.Generator().manual_seed(width)
    found = []
    for i, (given, mine) in enumerate(zip(PROCESSED.values(), modes, strict=True)):
        params = SamplingParams(**given, logprobs_modes=mine, top_logprobs=3 + 5 * i, logprob_token_ids=[7, 1, 3])
        target = (torch.randn(3, width, generator=generator) * 2).to(dtype)
        found.append(Request(target, [6, 9], params, output=[5, 9, 9], seed=i))
    return found


@pytest.mark.parametrize("width", [40, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_all_modes_at_once_against_fp64(width: int, dtype: torch.dtype) -> None:
    requests = requests_of([MODES] * len(PROCESSED), width, dtype)
    result = verify(make_step(requests), backend="cpu")
    assert set(result.logprobs) == set(MODES)
    for r, request in enumerate(requests):
        for j, m in enumerate(range(result.cu_tokens[r], result.cu_tokens[r + 1])):
            for mode in MODES:
                truth = true_values(request, j, mode)
                check(result.logprobs[mode], m, truth, int(result.token_ids[m]), request.params)
    for mode in MODES:
        values, cu = result.logprobs[mode].values, result.cu_tokens.tolist()
        sums = [values[a:b].sum(dtype=float) for a, b in pairwise(cu)]
        expected = sums if mode.normalised else [np.nan] * len(sums)
        np.testing.assert_allclose(result.logprobs[mode].cumulative, expected, atol=1e-5)


def test_a_raw_logit_is_the_clients_own_number() -> None:
    requests = requests_of([[LogprobsMode.RAW_LOGITS]] * len(PROCESSED), dtype=torch.bfloat16)
    result = verify(make_step(requests), backend="cpu")
    rows = [request.target[j] for r, request in enumerate(requests) for j in range(np.diff(result.cu_tokens)[r])]
    expected = [float(row[token]) for row, token in zip(rows, result.token_ids.tolist(), strict=True)]
    assert result.logprobs[LogprobsMode.RAW_LOGITS].values.tolist() == expected


def test_each_request_gets_its_own_modes_with_the_bits_it_gets_alone() -> None:
    wishes = [MODES[i % 5 :] + MODES[: max(0, i - 4)] for i in range(len(PROCESSED))]
    requests = requests_of(wishes)
    together = verify(make_step(requests), backend="cpu")
    for r, request in enumerate(requests):
        alone = verify(make_step([request]), backend="cpu")
        mine = slice(together.cu_tokens[r], together.cu_tokens[r + 1])
        assert together.token_ids[mine].tolist() == alone.token_ids.tolist()
        assert set(alone.logprobs) == set(wishes[r])
        for mode in MODES:
            found = together.logprobs[mode]
            top = slice(found.cu_top[mine.start], found.cu_top[mine.stop])
            if mode not in wishes[r]:
                assert np.isnan(found.values[mine]).all()
                assert not found.ranks[mine].any()
                assert top.start == top.stop
                continue
            own = alone.logprobs[mode]
            np.testing.assert_array_equal(found.values[mine], own.values)
            np.testing.assert_array_equal(found.ranks[mine], own.ranks)
            np.testing.assert_array_equal(found.top_ids[top], own.top_ids)
            np.testing.assert_array_equal(found.top_values[top], own.top_values)
            np.testing.assert_array_equal(found.cumulative[r], own.cumulative[0])


def test_what_a_filter_dropped_is_minus_infinity_and_has_no_place() -> None:
    modes = [LogprobsMode.PROCESSED_LOGPROBS, LogprobsMode.PROCESSED_LOGITS, LogprobsMode.RAW_LOGPROBS]
    params = SamplingParams(top_k=2, temperature=2.0, logprobs_modes=modes, top_logprobs=4, logprob_token_ids=[3, 0])
    result = verify(make_step([Request(torch.tensor([[4.0, 2.0, 1.0, 0.0]]), (), params)]), backend="cpu")
    processed, logits, raw = (result.logprobs[mode] for mode in modes)
    assert processed.top_ids.tolist() == logits.top_ids.tolist() == [0, 1]
    assert logits.top_values.tolist() == [2.0, 1.0]
    assert processed.chosen_values.tolist() == [-np.inf, pytest.approx(-np.log(1 + np.exp(-1)))]
    assert raw.top_ids.tolist() == [0, 1, 2, 3]
