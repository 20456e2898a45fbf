"""Strict, synthetic, typical and relaxed: hand-worked cases, and fp64 truths from the contract's formulas."""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf, log

import numpy as np
import pytest
import torch
from torch import Tensor

from sampler_kernels import LogprobsMode, Method, SamplingParams, Status, Step, verify
from sampler_kernels.checks.shapes import host_columns
from sampler_kernels.planning.plan import plan
from sampler_kernels.stats.entropy import entropy
from tests.kernels.asking import Ask, answers, shares, step_of, tokens_of
from tests.kernels.steps import lazy_stats, true_softmax, true_uniform

NAN = float("nan")
QUIET = SamplingParams(logprobs_modes=())
SYNTHETIC = replace(QUIET, method=Method.SYNTHETIC, synthetic_rates=[0.5, 0.3])
TYPICAL = replace(QUIET, method=Method.TYPICAL)
RELAXED = replace(QUIET, method=Method.RELAXED, relaxed_top_n=3, relaxed_margin=1.0)
STRICT = replace(QUIET, method=Method.STRICT)
LOSSY = [SYNTHETIC, TYPICAL, RELAXED]


def logits(*rows: list[float]) -> Tensor:
    """Rows of probabilities as logits."""
    return torch.tensor(rows, dtype=torch.float64).log().float()


def accepted(*asks: Ask) -> list[int]:
    return [int(t) for t in answers(asks, "cpu").num_accepted]


def drawn(row: Tensor, temperature: float, seed: int, position: int) -> int:
    """What a draw from a row gives."""
    prefix = np.cumsum(true_softmax(row, temperature))
    return int(np.searchsorted(prefix, true_uniform(seed, position, 1, 0) * prefix[-1], side="right"))


# ---- strict ----


def test_strict_emits_what_the_target_alone_draws() -> None:
    """Whatever the drafts, and wherever a step ends: token by token the draws of the positions."""
    generator = torch.Generator().manual_seed(2)
    target = torch.randn(4, 12, generator=generator)
    for seed in range(60):
        alone = [drawn(target[j], 0.8, seed, 2**32 - 2 + j) for j in range(4)]
        for ids in (
            alone[:3],
            [*alone[:2], (alone[2] + 1) % 12],
            [(alone[0] + 1) % 12, *alone[1:3]],
            [alone[0], -1, 0],
        ):
            stands = next((j for j in range(3) if ids[j] != alone[j]), 3)
            ask = Ask(target=target, ids=ids, params=replace(STRICT, temperature=0.8), seed=seed, position=2**32 - 2)
            result = answers([ask], "cpu")
            assert result.num_accepted.tolist() == [stands]
            assert tokens_of(result) == [alone[: stands + 1]]
            assert not result.lossy[0]


def test_strict_reads_no_draft_row() -> None:
    ask = Ask(target=torch.zeros(2, 4), ids=[1], draft=torch.full((1, 4), NAN), params=STRICT)
    assert answers([ask], "cpu").status.tolist() == [Status.OK]


# ---- synthetic ----


def test_synthetic_stands_at_its_rates() -> None:
    """u_i < rate_i, whatever p is; the final token is drawn from p."""
    target = torch.tensor([[0.0, -inf, 0.0]]).repeat(3, 1)
    for seed in range(300):
        first, second = (true_uniform(seed, j, 0, j) < rate for j, rate in ((0, 0.5), (1, 0.3)))
        t = 2 if first and second else int(first)
        result = answers([Ask(target=target, ids=[1, 1], params=SYNTHETIC, seed=seed)], "cpu")
        assert tokens_of(result) == [[1] * t + [drawn(target[t], 1.0, seed, t)]]


@pytest.mark.parametrize(("rate", "stands"), [(0.0, 0), (1.0, 2)])
def test_synthetic_rates_at_their_ends(rate: float, stands: int) -> None:
    params = replace(SYNTHETIC, synthetic_rates=[rate, rate, 0.5])
    asks = [Ask(target=torch.zeros(3, 4), ids=[1, 2], params=params, seed=seed) for seed in range(200)]
    assert accepted(*asks) == [stands] * 200


def test_each_request_has_its_own_rates() -> None:
    """Rates are by index in the request, of lists that may be longer than the drafts, beside others without any."""
    sure, never = (replace(SYNTHETIC, synthetic_rates=rates) for rates in ([1.0, 1.0, 0.0, 0.0], [0.0]))
    target = torch.zeros(4, 4)
    asks = [
        Ask(target=target, ids=[0, 1, 2], params=sure),
        Ask(target=target[:1], params=replace(SYNTHETIC, synthetic_rates=[])),
        Ask(target=target[:2], ids=[3], params=never),
        Ask(target=target[:3], ids=[1, 2], params=replace(QUIET, temperature=0)),
        Ask(target=target[:3], ids=[0, 1], params=sure),
    ]
    assert accepted(*asks) == [2, 0, 0, 0, 2]


# ---- typical ----


@pytest.mark.parametrize("vocab", [1, 2, 100, 4096, 4100, 70_000])
@pytest.mark.parametrize("spread", [0.0, 1.0, 8.0])
def test_entropy(vocab: int, spread: float) -> None:
    """Against fp64, filtered or not: exp(-H), and so any threshold, is within the 1e-6 that decisions may differ by."""
    rows = torch.randn(3, vocab, generator=torch.Generator().manual_seed(vocab)) * spread
    rows[1, vocab // 2 + 1 :] = -inf
    for temperature in (0.3, 1.0, 5.0):
        for top_k in (0, 7):
            step = Step(
                target_logits=rows,
                draft_token_ids=torch.empty(0, dtype=torch.int64),
                draft_lengths=[0] * 3,
                params=[SamplingParams(temperature=temperature, top_k=top_k)],
            )
            target, _ = lazy_stats(plan(step, host_columns(step), torch.device("cpu")).batch)
            which = np.arange(3)
            got = entropy(target, which, target.totals(which))
            for j in range(3):
                p = true_softmax(rows[j], temperature)
                if top_k:
                    p = np.where(
                        np.isin(np.arange(vocab), np.argsort(-rows[j].double().numpy(), kind="stable")[:7]), p, 0
                    )
                p = p[p > 0] / p.sum()
                assert abs(exp(-got[j]) - exp(np.sum(p * np.log(p)))) < 1e-6


def test_typical_by_hand() -> None:
    """Of p = [.5 .3 .2]: H = 1.0297, delta exp(-H) = .0321, all stand; at delta 1 the threshold is min(.3, .3571)."""
    target = logits([0.5, 0.3, 0.2], [1.0, 0.0, 0.0])
    entropy_of = -sum(p * log(p) for p in (0.5, 0.3, 0.2))
    assert accepted(*(Ask(target=target, ids=[x], params=TYPICAL) for x in range(3))) == [1, 1, 1]
    wide = replace(TYPICAL, typical_delta=1.0)
    assert accepted(*(Ask(target=target, ids=[x], params=wide) for x in (0, 2))) == [1, 0]
    for epsilon, stands in ((0.299, 1), (0.301, 0)):
        assert accepted(Ask(target=target, ids=[1], params=replace(wide, typical_epsilon=epsilon))) == [stands]
    for factor, stands in ((0.999, 1), (1.001, 0)):
        delta = 0.2 * factor * exp(entropy_of)
        params = replace(TYPICAL, typical_delta=delta, typical_epsilon=1.0)
        assert accepted(Ask(target=target, ids=[2], params=params)) == [stands]


def test_typical_looks_at_the_processed_row() -> None:
    """Top-k 2 leaves [.625 .375]: the third token has p = 0, and no threshold is below that."""
    target = logits([0.5, 0.3, 0.2], [1.0, 0.0, 0.0])
    params = replace(TYPICAL, top_k=2, typical_epsilon=0.36, typical_delta=1.0)
    assert accepted(*(Ask(target=target, ids=[x], params=params) for x in range(3))) == [1, 1, 0]
    # A point mass has entropy 0: the threshold is min(epsilon, delta), and p = 1 is above it unless both are 1.
    sure = logits([1.0, 0.0, 0.0], [1.0, 0.0, 0.0])
    assert accepted(Ask(target=sure, ids=[0], params=TYPICAL), Ask(target=sure, ids=[1], params=TYPICAL)) == [1, 0]


# ---- relaxed ----


@pytest.mark.parametrize(
    ("token", "top_n", "margin", "stands"),
    [
        (2, 3, 1.0, 1),
        (2, 2, 1.0, 0),  # two logits of 1.5 and one of 2 are at or above its own
        (1, 2, 1.0, 0),  # of equals the one with the lower id ranks no better
        (2, 3, 0.5, 1),  # the margin's edge is inside
        (2, 3, 0.49, 0),
        (0, 1, 0.0, 1),
        (3, 4, 3.0, 1),
        (3, 3, inf, 0),
        (3, 2**40, inf, 1),
        (4, 2**40, inf, 0),  # what a mask dropped ranks nowhere
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_relaxed_by_hand(token: int, top_n: int, margin: float, stands: int, temperature: float) -> None:
    target = torch.tensor([[2.0, 1.5, 1.5, -1.0, -inf]]).repeat(2, 1)
    params = replace(RELAXED, relaxed_top_n=top_n, relaxed_margin=margin, temperature=temperature)
    assert accepted(Ask(target=target, ids=[token], params=params)) == [stands]


@pytest.mark.parametrize(("temperature", "stands"), [(0.5, 0), (0.999, 0), (1.001, 1), (2.0, 1)])
def test_relaxed_margin_is_of_tempered_logits(temperature: float, stands: int) -> None:
    target = torch.tensor([[2.0, 1.0, 0.0]]).repeat(2, 1)
    assert accepted(Ask(target=target, ids=[1], params=replace(RELAXED, temperature=temperature))) == [stands]


def test_relaxed_looks_at_the_processed_row() -> None:
    target = torch.tensor([[9.0, 2.0, 1.5, 1.0]]).repeat(2, 1)
    masked = replace(RELAXED, allowed_token_ids=[1, 2, 3], relaxed_top_n=2)
    assert accepted(*(Ask(target=target, ids=[x], params=masked) for x in range(4))) == [0, 1, 1, 0]
    cut = replace(RELAXED, top_k=2, relaxed_margin=inf)
    assert accepted(*(Ask(target=target, ids=[x], params=cut) for x in range(4))) == [1, 1, 0, 0]


# ---- what the lossy ones share ----


@pytest.mark.parametrize("params", LOSSY, ids=lambda p: p.method.value)
def test_final_token_is_the_argmax_at_temperature_0(params: SamplingParams) -> None:
    """Also where nothing was rejected; among equals the lowest id."""
    greedy = replace(params, temperature=0, synthetic_rates=[1.0, 0.0])
    target = torch.tensor([[0.0, 3.0, 3.0], [1.0, 0.5, 1.0], [0.0, 0.0, 0.0]])
    for ids in ([1, 0], [1, -1], [-1, 0], [1], []):
        result = answers([Ask(target=target[: len(ids) + 1], ids=ids, params=greedy, seed=3)], "cpu")
        emitted, t = tokens_of(result)[0], int(result.num_accepted[0])
        assert emitted[:t] == ids[:t]
        assert emitted[t] == [1, 0, 0][t]
        assert result.lossy.tolist() == [True]


@pytest.mark.parametrize("params", [*LOSSY, STRICT], ids=lambda p: p.method.value)
def test_nothing_stands_past_the_vocabulary_or_a_placeholder(params: SamplingParams) -> None:
    generous = replace(
        params, synthetic_rates=[1.0, 1.0], typical_epsilon=1e-9, relaxed_top_n=2**31, relaxed_margin=inf
    )
    target = torch.tensor([[0.0, -inf, -inf]]).repeat(3, 1)
    for ids, stands in (([4, 0], 0), ([0, 4], 1), ([0, -1], 1), ([-1, 0], 0)):
        result = answers([Ask(target=target, ids=ids, draft=torch.zeros(2, 5), params=generous)], "cpu")
        assert result.num_accepted.tolist() == [stands]
        assert tokens_of(result) == [[0] * (stands + 1)]


@pytest.mark.parametrize("params", [*LOSSY, STRICT], ids=lambda p: p.method.value)
def test_only_needed_rows_are_judged(params: SamplingParams) -> None:
    never = replace(params, synthetic_rates=[0.0, 0.0], typical_epsilon=1.0, typical_delta=1.0, relaxed_top_n=1)
    target = torch.tensor([[0.0, -inf], [NAN, 0.0], [0.0, 0.0]])
    result = answers([Ask(target=target, ids=[1, 0], params=never)], "cpu")
    assert (result.status.tolist(), result.bad_row.tolist()) == ([Status.OK], [-1])
    always = replace(params, synthetic_rates=[1.0, 1.0])
    result = answers([Ask(target=target, ids=[0, 0], params=always)], "cpu")
    assert (result.status.tolist(), result.bad_row.tolist()) == ([Status.INVALID_LOGITS], [1])
    assert (result.num_accepted.tolist(), tokens_of(result), result.lossy.tolist()) == (
        [0],
        [[]],
        [params.method.lossy],
    )


# ---- all of them together ----


ALL_METHODS = [
    *LOSSY,
    STRICT,
    replace(QUIET, method=Method.BLOCK, acceptance_probabilities=True),
    replace(QUIET, method=Method.STANDARD, temperature=0.7),
    replace(QUIET, method=Method.BLOCK, temperature=0),
    replace(QUIET, method=Method.RELAXED, relaxed_top_n=4, relaxed_margin=2.0, temperature=0),
    replace(QUIET, method=Method.BLOCK, top_p=0.9, stop_token_ids=[1, 2], max_tokens=2),
    SamplingParams(method=Method.TYPICAL, typical_delta=0.9, top_logprobs=3, temperature=1.3),
    SamplingParams(method=Method.STRICT, logprobs_modes=[LogprobsMode.PROCESSED_LOGPROBS], min_p=0.05),
]


@pytest.mark.parametrize("vocab", [2, 40, 4096, 9000])
def test_a_request_gets_the_same_bits_alone_and_in_any_batch(vocab: int) -> None:
    generator = np.random.default_rng(vocab)
    asks = []
    for i in range(33):
        k = int(generator.integers(0, 5))
        target = torch.from_numpy(generator.normal(size=(k + 1, vocab)) * 2).bfloat16()
        draft = target[:k] + torch.from_numpy(generator.normal(size=(k, vocab)) * 0.5).bfloat16()
        params = ALL_METHODS[i % len(ALL_METHODS)]
        if params.method is Method.SYNTHETIC:
            params = replace(params, synthetic_rates=[0.7] * k)
        asks.append(
            Ask(
                target=target,
                ids=[int(draft[j].argmax()) if generator.random() < 0.7 else -(i % 2) for j in range(k)],
                draft=draft if i % 3 else None,
                params=replace(params, stop_token_ids=[1]) if params.stop_token_ids else params,
                seed=i,
                position=2**32 - 2,
            )
        )
    together = shares(answers(asks, "cpu"))
    order = generator.permutation(len(asks))
    assert [shares(answers([ask], "cpu"))[0] for ask in asks] == together
    assert shares(answers([asks[i] for i in order], "cpu")) == [together[i] for i in order]
    assert shares(answers(asks[5:9], "cpu")) == together[5:9]


def test_a_seedless_request_is_replayed_from_the_seed_it_was_given() -> None:
    """Of every method, through the whole step; and given seeds differ."""
    generator = torch.Generator().manual_seed(8)
    asks = [
        Ask(
            target=torch.randn(4, 50, generator=generator),
            ids=[3, 4, 5],
            draft=torch.randn(3, 50, generator=generator),
            params=SamplingParams(method=method, synthetic_rates=[0.5] * 3, relaxed_top_n=9, relaxed_margin=3.0),
            position=77,
        )
        for method in Method
        for _ in range(20)
    ]
    seedless = verify(replace(step_of(asks), seeds=None), backend="cpu")
    seeds = [int(seed) for seed in seedless.seeds]
    assert len(set(seeds)) == len(seeds)
    assert max(seeds) < 2**53
    replayed = verify(replace(step_of(asks), seeds=seeds), backend="cpu")
    assert shares(replayed) == shares(seedless)
