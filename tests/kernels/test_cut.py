"""Where emitted tokens are cut, and that everything reported speaks of what is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import nan

import numpy as np
import pytest
import torch

from sampler_kernels import FinishReason, LogprobsMode, Method, SamplingParams, Status
from tests.kernels.asking import Ask, answers, tokens_of

NONE, STOP, LENGTH = FinishReason.NONE, FinishReason.STOP, FinishReason.LENGTH
TARGET = torch.tensor([[0.0, 9, 0, 0], [0, 0, 9, 0], [0, 0, 0, 9], [9, 0, 0, 0]])
"""Argmaxes 1 2 3 0."""


def greedy(
    stops: Sequence[int] = (), limit: int | None = None, ids: Sequence[int] = (1, 2, 3)
) -> tuple[list[int], int, FinishReason]:
    params = SamplingParams(temperature=0, stop_token_ids=stops, max_tokens=limit)
    result = answers([Ask(target=TARGET[: len(ids) + 1], ids=ids, params=params)], "cpu")
    return tokens_of(result)[0], int(result.num_accepted[0]), FinishReason(int(result.finish_reason[0]))


@pytest.mark.parametrize(
    ("stops", "limit", "emitted", "accepted", "reason"),
    [
        ((), None, [1, 2, 3, 0], 3, NONE),
        ((2,), None, [1, 2], 2, STOP),
        ((3, 2), None, [1, 2], 2, STOP),
        ((2, 2), 2, [1, 2], 2, STOP),  # at one token the stop wins
        ((2,), 1, [1], 1, LENGTH),
        ((2,), 3, [1, 2], 2, STOP),
        ((), 1, [1], 1, LENGTH),
        ((), 3, [1, 2, 3], 3, LENGTH),
        ((), 4, [1, 2, 3, 0], 3, LENGTH),  # reached exactly
        ((), 5, [1, 2, 3, 0], 3, NONE),
        ((), 2**70, [1, 2, 3, 0], 3, NONE),
        ((0,), None, [1, 2, 3, 0], 3, STOP),  # the bonus token
        ((0,), 4, [1, 2, 3, 0], 3, STOP),
        ((1,), None, [1], 1, STOP),
    ],
)
def test_all_stand(
    stops: tuple[int, ...], limit: int | None, emitted: list[int], accepted: int, reason: FinishReason
) -> None:
    assert greedy(stops, limit) == (emitted, accepted, reason)


def test_a_redrawn_token_stops_and_a_rejected_draft_does_not() -> None:
    assert greedy((2,), ids=(1, 3, 3)) == ([1, 2], 1, STOP)
    assert greedy((3,), ids=(1, 3, 3)) == ([1, 2], 1, NONE)
    assert greedy((), 2, ids=(1, 3, 3)) == ([1, 2], 1, LENGTH)
    assert greedy((1,), ids=()) == ([1], 0, STOP)


@pytest.mark.parametrize("method", [Method.STANDARD, Method.STRICT, Method.BLOCK, Method.SYNTHETIC])
def test_a_cut_changes_nothing_before_it(method: Method) -> None:
    """Random requests: the tokens are those of the uncut run up to the first stop or the limit, by a plain loop."""
    generator = torch.Generator().manual_seed(4)
    quiet = SamplingParams(method=method, synthetic_rates=[0.8] * 4, logprobs_modes=())
    uncut = [
        Ask(target=target, ids=target[:4].argmax(1).tolist(), params=quiet, seed=seed)
        for seed, target in enumerate(torch.randn(200, 5, 6, generator=generator) * 3)
    ]
    whole = answers(uncut, "cpu")
    wishes = [((0, 3), None), ((5,), 2), ((), 3), ((1, 2, 4), 1)]
    cut = answers(
        [
            replace(ask, params=replace(quiet, stop_token_ids=wishes[i % 4][0], max_tokens=wishes[i % 4][1]))
            for i, ask in enumerate(uncut)
        ],
        "cpu",
    )
    for i, (tokens, t) in enumerate(zip(tokens_of(whole), whole.num_accepted, strict=True)):
        stops, limit = wishes[i % 4]
        kept, reason = [], NONE
        for token in tokens:
            kept.append(token)
            if token in stops or len(kept) == limit:
                reason = STOP if token in stops else LENGTH
                break
        assert tokens_of(cut)[i] == kept
        assert cut.finish_reason[i] == reason
        assert cut.num_accepted[i] == min(t, len(kept))


def test_logprobs_are_of_what_is_left() -> None:
    modes = [LogprobsMode.RAW_LOGPROBS, LogprobsMode.PROCESSED_LOGPROBS]
    whole = SamplingParams(temperature=0, logprobs_modes=modes, top_logprobs=2, logprob_token_ids=[3])
    asks = [
        Ask(target=TARGET, ids=[1, 2, 3], params=replace(whole, stop_token_ids=[2])),
        Ask(target=TARGET, ids=[1, 2, 3], params=whole),
    ]
    result = answers(asks, "cpu")
    assert result.cu_tokens.tolist() == [0, 2, 6]
    for mode in modes:
        numbers = result.logprobs[mode]
        assert len(numbers.values) == len(numbers.ranks) == 6
        assert np.diff(numbers.cu_top).tolist() == [2] * 6
        assert np.array_equal(numbers.values[:2], numbers.values[2:4])
        assert numbers.cumulative[0] == numbers.values[:2].sum(dtype=np.float64)


def test_bad_rows_are_judged_before_the_cut() -> None:
    """The row of the final token is needed, though a stop before it means that nothing is emitted there."""
    target = TARGET.clone()
    target[3, 0] = nan
    params = SamplingParams(temperature=0, stop_token_ids=[1], max_tokens=1)
    ask = Ask(target=target, ids=[1, 2, 3], params=params)
    result = answers([ask, replace(ask, ids=[1, 2, 0]), replace(ask, target=TARGET)], "cpu")
    assert result.status.tolist() == [Status.INVALID_LOGITS, Status.OK, Status.OK]
    assert result.bad_row.tolist() == [3, -1, -1]
    assert tokens_of(result) == [[], [1], [1]]
    assert result.finish_reason.tolist() == [NONE, STOP, STOP]
    assert result.num_accepted.tolist() == [0, 1, 1]


def test_stop_ids_are_each_request_s_own() -> None:
    params = [SamplingParams(temperature=0, stop_token_ids=stops) for stops in ([1], [], [3], [2, 0], [1])]
    result = answers([Ask(target=TARGET, ids=[1, 2, 3], params=one) for one in params], "cpu")
    assert [len(tokens) for tokens in tokens_of(result)] == [1, 4, 3, 2, 1]
