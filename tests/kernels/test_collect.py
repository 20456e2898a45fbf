"""Outcome -> result: what is kept of the rows, and what each request gets of what the batch computed."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sampler_kernels import LogprobsMode, ModeLogprobs, SamplingParams, Status, Step, StepResult
from sampler_kernels.checks import checked
from sampler_kernels.collect import collect
from sampler_kernels.outcome import Decision, TopLogits
from sampler_kernels.planning.plan import plan

V = 8
LENGTHS = [2, 1, 0, 3]
ROWS = 10
WISHES = [
    SamplingParams(top_logprobs=3, logprob_token_ids=[4, 6]),
    SamplingParams(),
    SamplingParams(logprobs_modes=[]),
    SamplingParams(top_logprobs=1, ranks=False, logprob_token_ids=[7]),
]
EMITTED = [3, 5, -1, -1, -1, 2, 1, 1, 7, 0]
"""Rows 0-2, 3-4, 5, 6-9; request 0 accepts one token, request 1 fails, request 3 accepts all."""


def i32(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def top_logprobs() -> TopLogits:
    """Values -0.5, -1.5, ... by row; row i's top ids are i % 8 and the two ids after it."""
    values = -torch.arange(ROWS, dtype=torch.float32) - 0.5
    top_ids = (torch.arange(ROWS)[:, None] + torch.arange(3)).remainder(V).to(torch.int32)
    top_values = values[:, None] - torch.arange(3)
    top_values[0, 2], top_ids[0, 2] = -inf, -1
    top_values[1, 1] = -inf
    chosen = torch.stack([values - 10, values - 20], dim=1)
    chosen[1, 1] = -inf
    return TopLogits(
        values, torch.zeros(ROWS, dtype=torch.float64), i32(list(range(1, ROWS + 1))), top_ids, top_values, chosen
    )


def result(raw: TopLogits | None, status: list[int] | None = None) -> StepResult:
    step = Step(
        target_logits=torch.zeros(ROWS, V),
        draft_token_ids=torch.zeros(6, dtype=torch.int64),
        draft_lengths=LENGTHS,
        params=WISHES,
        params_index=[0, 1, 2, 3],
        seeds=[2**64 - 1, 1, 2, 3],
    )
    decision = Decision(
        num_accepted=i32([1, 0, 0, 3]),
        status=i32(status or [Status.OK, Status.INVALID_LOGITS, Status.OK, Status.OK]),
        bad_row=i32([-1, 1, -1, -1]),
        draw_kind=i32([2, 0, 2, 2]),
        scale=torch.ones(4, dtype=torch.float64),
    )
    return collect(plan(step, checked(step), torch.device("cpu")), decision, i32(EMITTED), raw, None)


def raw_logprobs() -> ModeLogprobs:
    return result(top_logprobs()).logprobs[LogprobsMode.RAW_LOGPROBS]


def test_emitted_tokens_are_joined_in_request_order() -> None:
    answer = result(None)
    assert answer.token_ids.tolist() == [3, 5, 2, 1, 1, 7, 0]
    assert answer.cu_tokens.tolist() == [0, 2, 2, 3, 7]
    assert answer.num_accepted.tolist() == [1, 0, 0, 3]
    assert answer.status.tolist() == [Status.OK, Status.INVALID_LOGITS, Status.OK, Status.OK]
    assert answer.bad_row.tolist() == [-1, 1, -1, -1]
    assert answer.seeds.tolist() == [2**64 - 1, 1, 2, 3]
    assert answer.lossy.tolist() == [False] * 4
    assert answer.finish_reason.tolist() == [0] * 4
    assert not answer.logprobs


def test_dtypes_are_those_promised() -> None:
    answer = result(top_logprobs())
    raw = answer.logprobs[LogprobsMode.RAW_LOGPROBS]
    promised: list[tuple[type[np.generic], list[NDArray[Any]]]] = [
        (np.int32, [answer.token_ids, answer.cu_tokens, answer.num_accepted, answer.bad_row]),
        (np.int32, [raw.ranks, raw.cu_top, raw.top_ids, raw.cu_chosen, raw.chosen_ids]),
        (np.uint8, [answer.status, answer.finish_reason]),
        (np.float32, [raw.values, raw.top_values, raw.chosen_values]),
        (np.float64, [raw.cumulative]),
        (np.uint64, [answer.seeds]),
        (np.bool_, [answer.lossy]),
    ]
    for dtype, arrays in promised:
        assert {array.dtype for array in arrays} == {np.dtype(dtype)}


def test_a_failed_request_emits_nothing_whatever_was_accepted() -> None:
    answer = result(top_logprobs(), status=[Status.INVALID_DRAFT_TOKEN] * 4)
    assert answer.token_ids.tolist() == []
    assert answer.cu_tokens.tolist() == [0] * 5
    assert answer.num_accepted.tolist() == [0] * 4
    assert answer.bad_row.tolist() == [-1] * 4
    assert answer.logprobs[LogprobsMode.RAW_LOGPROBS].cu_top.tolist() == [0]


def test_values_and_ranks_by_wish() -> None:
    raw = raw_logprobs()
    # Rows 0 and 1 of request 0; row 5 of request 2, which wants none; rows 6 to 9 of request 3, which wants no ranks.
    np.testing.assert_array_equal(raw.values, [-0.5, -1.5, nan, -6.5, -7.5, -8.5, -9.5])
    assert raw.ranks.tolist() == [1, 2, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(raw.cumulative, [-2.0, 0.0, nan, -32.0])


def test_each_request_gets_its_own_n_and_no_entry_without_mass() -> None:
    raw = raw_logprobs()
    assert raw.cu_top.tolist() == [0, 2, 4, 4, 5, 6, 7, 8]
    assert raw.top_ids.tolist() == [0, 1, 1, 3, 6, 7, 0, 1]
    assert raw.top_values.tolist() == [-0.5, -1.5, -1.5, -3.5, -6.5, -7.5, -8.5, -9.5]


def test_chosen_ids_are_each_requests_own_in_the_order_listed() -> None:
    raw = raw_logprobs()
    assert raw.cu_chosen.tolist() == [0, 2, 4, 4, 5, 6, 7, 8]
    assert raw.chosen_ids.tolist() == [4, 6, 4, 6, 7, 7, 7, 7]
    # An id that is asked for is answered, even where it has no mass.
    assert raw.chosen_values.tolist() == [-10.5, -20.5, -11.5, -inf, -16.5, -17.5, -18.5, -19.5]


def test_cumulative_does_not_depend_on_the_neighbours() -> None:
    raw = top_logprobs()
    plain = result(raw).logprobs[LogprobsMode.RAW_LOGPROBS].cumulative[3]
    raw.logits[:2] = torch.tensor([-1e30, -inf])
    assert result(raw).logprobs[LogprobsMode.RAW_LOGPROBS].cumulative[3] == plain
