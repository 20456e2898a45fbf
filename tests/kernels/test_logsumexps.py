"""Supplied log-sum-exps: what is read, what is not, and what happens where they are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
import torch
from torch import Tensor

from sampler_kernels import IdMap, LogprobsMode, Reason, SamplingParams, Status, Step, StepRefused, StepResult, verify
from tests.kernels.asking import Ask, Share, shares, step_of, tokens_of

MODES = [LogprobsMode.RAW_LOGPROBS, LogprobsMode.PROCESSED_LOGPROBS, LogprobsMode.PROCESSED_LOGITS]
PLAIN = SamplingParams(ranks=False, logprobs_modes=MODES)
TEMPERED = replace(PLAIN, temperature=0.6, draft_temperature=1.7, logprobs_modes=MODES[1:])


def sums(rows: Tensor, temperature: float) -> Tensor:
    return (rows.double() / temperature).logsumexp(1)


def supplied(asks: Sequence[Ask], *, off: float = 0.0) -> Step:
    """The step with the true log-sum-exps of all rows, ``off`` by so much."""
    step = step_of(asks)
    target = torch.cat([sums(ask.target, ask.params.temperature) for ask in asks])
    drafts = [
        sums(ask.draft, ask.params.draft_temperature or ask.params.temperature) for ask in asks if ask.draft is not None
    ]
    draft = torch.cat(drafts) + off if drafts else None
    return replace(step, target_logsumexp=target + off, draft_logsumexp=draft)


def random_asks(count: int, vocab: int = 300) -> list[Ask]:
    generator = torch.Generator().manual_seed(vocab)
    asks = []
    for i in range(count):
        k = i % 5
        target = torch.randn(k + 1, vocab, generator=generator) * 2
        draft = target[:k] + torch.randn(k, vocab, generator=generator) * 0.5
        id_map, ids = None, draft.argmax(1)
        if i % 3 == 1 and k:
            columns = torch.randperm(vocab, generator=generator)[:40]
            draft, id_map = draft[:, columns], IdMap(columns, vocab)
            ids = columns[draft.argmax(1)]
        asks.append(
            Ask(
                target=target,
                ids=ids.tolist(),
                draft=draft if i % 4 and k else None,
                id_map=id_map if i % 4 else None,
                params=(PLAIN, TEMPERED, replace(PLAIN, draft_temperature=0.0))[i % 3 if i % 7 else 2],
                seed=i,
                position=5 * i,
            )
        )
    return asks


def values(result: StepResult, mode: LogprobsMode) -> list[float]:
    return result.logprobs[mode].values.tolist()


@pytest.mark.parametrize("vocab", [2, 300, 9000])
def test_true_sums_change_nothing(vocab: int) -> None:
    asks = random_asks(60, max(vocab, 41)) if vocab > 2 else [replace(a, id_map=None) for a in two_token_asks()]
    read, told = verify(step_of(asks), backend="cpu"), verify(supplied(asks), backend="cpu")
    assert tokens_of(told) == tokens_of(read)
    assert told.num_accepted.tolist() == read.num_accepted.tolist()
    assert 0 < told.num_accepted.sum() < sum(len(ask.ids) for ask in asks)
    for mode in read.logprobs:
        np.testing.assert_allclose(values(told, mode), values(read, mode), atol=2e-6)
        np.testing.assert_allclose(told.logprobs[mode].cumulative, read.logprobs[mode].cumulative, atol=1e-5)


def two_token_asks() -> list[Ask]:
    target, draft = torch.tensor([[0.0, 1.0]] * 3), torch.tensor([[1.0, 0.0]] * 2)
    return [Ask(target=target, ids=[i % 2, i // 2 % 2], draft=draft, params=PLAIN, seed=i) for i in range(40)]


def test_rows_that_are_not_drawn_from_are_not_read() -> None:
    """Row 0 has one logit that counts; whatever else is in it, or in the draft row beside it, goes unnoticed."""
    target = torch.tensor([[0.0, nan, inf], [0.0, -inf, -inf]])
    draft = torch.tensor([[0.0, nan, nan]])
    ask = Ask(target=target, ids=[0], draft=draft, params=PLAIN)
    zeros = torch.zeros(2, dtype=torch.float64)
    step = replace(step_of([ask]), target_logsumexp=zeros, draft_logsumexp=zeros[:1])
    result = verify(step, backend="cpu")
    assert (result.status.tolist(), tokens_of(result)) == ([Status.OK], [[0, 0]])
    assert values(result, LogprobsMode.RAW_LOGPROBS) == [0.0, 0.0]


@pytest.mark.parametrize("place", ["target", "draft"])
@pytest.mark.parametrize("value", [nan, inf])
def test_a_gathered_logit_is_judged(place: str, value: float) -> None:
    target, draft = torch.zeros(2, 3), torch.zeros(1, 3)
    (target if place == "target" else draft)[0, 1] = value
    ask = Ask(target=target, ids=[1], draft=draft, params=PLAIN)
    many = torch.full((2,), np.log(3.0), dtype=torch.float64)
    result = verify(replace(step_of([ask]), target_logsumexp=many, draft_logsumexp=many[:1]), backend="cpu")
    assert (result.status.tolist(), result.bad_row.tolist()) == ([Status.INVALID_LOGITS], [0])


def test_a_logit_that_is_reported_is_judged() -> None:
    target = torch.tensor([[0.0, -inf, nan], [0.0, -inf, 0.0]])
    ask = Ask(target=target, ids=[0], params=replace(PLAIN, logprob_token_ids=[2]))
    step = replace(step_of([ask]), target_logsumexp=torch.tensor([0.0, np.log(2.0)], dtype=torch.float64))
    result = verify(step, backend="cpu")
    assert (result.status.tolist(), result.bad_row.tolist()) == ([Status.INVALID_LOGITS], [0])


@pytest.mark.parametrize(("off", "fine"), [(0.9e-3, True), (-0.9e-3, True), (1.1e-3, False), (-1.1e-3, False)])
def test_a_row_that_is_read_may_not_disagree(off: float, fine: bool) -> None:
    """The bonus row of a request without drafts; and, rejected, the target row and the draft row beside it."""
    asks = [Ask(target=torch.zeros(1, 3), params=PLAIN)]
    falls = Ask(target=torch.tensor([[0.0, -inf, 0.0]] * 2), ids=[1], draft=torch.zeros(1, 3), params=TEMPERED)
    asks += [falls, replace(falls, params=PLAIN)]
    result = verify(supplied(asks, off=off), backend="cpu")
    assert (result.status == Status.OK).tolist() == [fine] * 3
    assert result.bad_row.tolist() == ([-1] if fine else [0]) * 3
    true = supplied(asks)
    assert true.draft_logsumexp is not None
    result = verify(replace(true, draft_logsumexp=true.draft_logsumexp + off), backend="cpu")
    assert (result.status == Status.OK).tolist() == [True, fine, fine]


def test_numbers_that_are_no_log_sum_exps() -> None:
    ask = Ask(target=torch.tensor([[0.0, 0.0], [0.0, -inf]]), ids=[0], draft=torch.zeros(1, 2), params=PLAIN)
    for value in (nan, inf, -inf):
        for field in ("target_logsumexp", "draft_logsumexp"):
            step = supplied([ask])
            sums_of = getattr(step, field).clone()
            sums_of[0] = value
            result = verify(replace(step, **{field: sums_of}), backend="cpu")
            assert (result.status.tolist(), result.bad_row.tolist()) == ([Status.INVALID_LOGITS], [0])
    for value in (1e300, -1e300, 800.0, -800.0):
        step = replace(supplied([ask]), target_logsumexp=torch.tensor([value, 0.0], dtype=torch.float64))
        status = verify(step, backend="cpu").status[0]
        assert status in (Status.OK, Status.INVALID_LOGITS)


def test_one_side_alone() -> None:
    asks = random_asks(30)
    step, read = supplied(asks), verify(step_of(asks), backend="cpu")
    for fields in ({"target_logsumexp": None}, {"draft_logsumexp": None}):
        assert tokens_of(verify(replace(step, **fields), backend="cpu")) == tokens_of(read)


def test_some_requests_of_a_step() -> None:
    """Beside requests of any kind, bit for bit as alone; and those that supply nothing are read as ever."""
    asks = random_asks(30)
    others = [
        replace(asks[7], params=SamplingParams(top_k=5, logit_bias={3: 2.0}, top_logprobs=4)),
        replace(asks[8], params=SamplingParams(temperature=0)),
    ]
    step = supplied(asks + others)
    drafted = [ask.draft is not None for ask in asks]
    mixed = replace(
        step,
        has_target_logsumexp=[True] * 30 + [False] * 2,
        has_draft_logsumexp=[*drafted, False, False],
    )
    got = shares(verify(mixed, backend="cpu"))

    def alone(ask: Ask) -> Share:
        return shares(verify(supplied([ask]), backend="cpu"))[0]

    assert got[:30] == [alone(ask) for ask in asks]
    assert got[30:] == [shares(verify(step_of([ask]), backend="cpu"))[0] for ask in others]


def refusal_of(step: Step) -> StepRefused:
    with pytest.raises(StepRefused) as caught:
        verify(step, backend="cpu")
    return caught.value


def test_refusals_name_a_request_that_supplies() -> None:
    asks = [replace(ask, params=PLAIN) for ask in random_asks(4)]
    asks[1] = replace(asks[1], params=SamplingParams(top_k=5))
    step = supplied(asks)
    refused = refusal_of(step)
    assert (refused.reason, refused.request) == (Reason.PARAMETER_CONFLICT, 1)
    draft = [ask.draft is not None for ask in asks]
    assert not draft[0]
    without = replace(step, has_target_logsumexp=[True, False, True, True], has_draft_logsumexp=[False] * 4)
    verify(without, backend="cpu")
    refused = refusal_of(replace(without, has_draft_logsumexp=[True, False, False, False]))
    assert (refused.reason, refused.field, refused.request) == (Reason.PARAMETER_CONFLICT, "has_draft_logsumexp", 0)
    refused = refusal_of(replace(without, has_target_logsumexp=[True]))
    assert (refused.reason, refused.field) == (Reason.SHAPE_MISMATCH, "has_target_logsumexp")
    rows = int(step.target_logits.shape[0])
    masked = replace(
        without,
        token_bitmask=torch.full((1, 10), -1, dtype=torch.int32),
        token_bitmask_index=[-1, 0, 0, *[-1] * (rows - 3)],
    )
    verify(masked, backend="cpu")
    refused = refusal_of(replace(masked, token_bitmask_index=[*[-1] * (rows - 1), 0]))
    assert (refused.reason, refused.field, refused.request) == (Reason.PARAMETER_CONFLICT, "token_bitmask", 3)
