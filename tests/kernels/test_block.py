"""Block verification: hand-worked runs, its mean against standard's, masses against fp64, and the rows it needs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels import DraftBlock, Method, SamplingParams, Status, Step, verify
from sampler_kernels.batch import Batch
from sampler_kernels.checks.shapes import host_columns
from sampler_kernels.planning.plan import plan
from sampler_kernels.rejection.block import _residual_mass
from sampler_kernels.rejection.waves import Columns
from tests.kernels.asking import Ask, answers, tokens_of
from tests.kernels.steps import lazy_stats, true_softmax, true_uniform

NAN, INF = float("nan"), float("inf")
BLOCK = SamplingParams(method=Method.BLOCK, logprobs_modes=())
SEEDS = 300


def logits(*rows: list[float]) -> Tensor:
    """Rows of probabilities as logits."""
    return torch.tensor(rows, dtype=torch.float64).log().float()


def u(seed: int, j: int) -> float:
    return true_uniform(seed, j, 0, j)


def accepted(asks: list[Ask]) -> list[int]:
    result = answers(asks, "cpu")
    assert (result.status == Status.OK).all()
    return [int(t) for t in result.num_accepted]


A, B = 0, 1
TARGET, DRAFT = logits(*[[1 / 3, 2 / 3]] * 3), logits(*[[2 / 3, 1 / 3]] * 2)


def hand_worked(ids: tuple[int, int], seed: int) -> int:
    """The table of docs/semantics.md: h of each of the four drafts, worked out by hand."""
    h1, h2 = {(A, A): (0.0, 1 / 4), (A, B): (0.0, 1.0), (B, A): (1.0, 1 / 2), (B, B): (1.0, 1.0)}[ids]
    return 2 if u(seed, 1) < h2 else 1 if u(seed, 0) < h1 else 0


@pytest.mark.parametrize("ids", [(A, A), (A, B), (B, A), (B, B)])
def test_two_tokens_by_hand(ids: tuple[int, int]) -> None:
    asks = [Ask(target=TARGET, ids=ids, draft=DRAFT, params=BLOCK, seed=seed) for seed in range(SEEDS)]
    result = answers(asks, "cpu")
    assert result.num_accepted.tolist() == [hand_worked(ids, seed) for seed in range(SEEDS)]
    # A rejected row leaves max(c p - q, 0): B alone, wherever it ends.
    ends = [tokens[-1] for tokens, t in zip(tokens_of(result), result.num_accepted, strict=True) if t < 2]
    assert set(ends) <= {B}


def three_tokens(seed: int) -> tuple[int, int]:
    """(t, final token) of p = [.5 .3 .2], q = [.2 .2 .6] at every row, drafts 2 0, k = 2.

    c_1 = 1/3; c_1 p - q = [-.0333 -.1 -.5333], no mass: h_1 = 0. c_2 = min(1, 1/3 * 2.5) = 5/6 = h_2.
    """
    if u(seed, 1) < 5 / 6:
        row = np.cumsum([0.5, 0.3, 0.2])
        return 2, int(np.searchsorted(row, true_uniform(seed, 2, 1, 0), side="right"))
    return 0, 0 if true_uniform(seed, 0, 1, 0) < 0.3 / 0.4 else 1


def test_three_tokens_by_hand() -> None:
    target, draft = logits(*[[0.5, 0.3, 0.2]] * 3), logits(*[[0.2, 0.2, 0.6]] * 2)
    asks = [Ask(target=target, ids=(2, 0), draft=draft, params=BLOCK, seed=seed) for seed in range(SEEDS)]
    result = answers(asks, "cpu")
    got = [(int(t), tokens[-1]) for t, tokens in zip(result.num_accepted, tokens_of(result), strict=True)]
    assert got == [three_tokens(seed) for seed in range(SEEDS)]


def scaled(seed: int) -> tuple[int, int]:
    """(t, final token) of p = [.6 .4] then [.1 .9] then [1 0], q = [.2 .8] then [.6 .4], drafts 1 0.

    c_1 = 1/2; S_1 = .45 - .4 = .05, so h_1 = .05/.55 = 1/11; c_2 = 1/2 * 1/6 = 1/12 = h_2. At t = 1 and at t = 0 one
    token alone has mass: B at row 1 since .05 - .6 < 0, A at row 0 since .6 > .2. An unscaled S_1 were .5, and h_1 1/2.
    """
    if u(seed, 1) < 1 / 12:
        return 2, A
    return (1, B) if u(seed, 0) < 1 / 11 else (0, A)


def test_masses_and_residuals_are_scaled_by_c() -> None:
    target, draft = logits([0.6, 0.4], [0.1, 0.9], [1.0, 0.0]), logits([0.2, 0.8], [0.6, 0.4])
    asks = [Ask(target=target, ids=(B, A), draft=draft, params=BLOCK, seed=seed) for seed in range(SEEDS)]
    result = answers(asks, "cpu")
    got = [(int(t), tokens[-1]) for t, tokens in zip(result.num_accepted, tokens_of(result), strict=True)]
    assert got == [scaled(seed) for seed in range(SEEDS)]
    assert {t for t, _ in got} == {0, 1, 2}, "every end is met"


def test_a_residual_scaled_by_c_loses_tokens() -> None:
    """With p_2 = [.5 .5 0], q_2 = [.2 .4 .4] and c_1 = .4 / (2/3) = .6 the residual is [.1 0 0]; unscaled [.3 .1 0]."""
    target = logits([0.6, 0.4, 0.0], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0])
    draft = logits([0.0, 2 / 3, 1 / 3], [0.2, 0.4, 0.4])
    asks = [Ask(target=target, ids=(1, 2), draft=draft, params=BLOCK, seed=seed) for seed in range(1000)]
    result = answers(asks, "cpu")
    ends = {(int(t), tokens[-1]) for t, tokens in zip(result.num_accepted, tokens_of(result), strict=True)}
    # S_1 = .1, h_1 = .1/.5 = 1/5; c_2 = 0. At t = 0: p - q = [.6 0 0].
    assert ends == {(0, 0), (1, 0)}
    assert result.num_accepted.tolist() == [int(u(seed, 0) < 1 / 5) for seed in range(1000)]


def test_point_mass_by_hand() -> None:
    """At its token q is 1: c_1 = .3, S_1 = .3 (1 - .2) = .24, h_1 = .24/.94; c_2 = .06."""
    target = logits([0.3, 0.7], [0.2, 0.8], [1.0, 0.0])
    asks = [Ask(target=target, ids=(A, A), params=BLOCK, seed=seed) for seed in range(2000)]
    want = [2 if u(s, 1) < 0.06 else int(u(s, 0) < 0.24 / 0.94) for s in range(2000)]
    assert accepted(asks) == want
    assert set(want) == {0, 1, 2}


def test_a_factor_that_was_0_stays_0() -> None:
    """First p = 0, and at the second token q = 0, whose ratio is infinite."""
    target, draft = logits([0.0, 1.0], [0.5, 0.5], [0.5, 0.5]), torch.tensor([[0.0, 0.0], [0.0, -INF]])
    asks = [Ask(target=target, ids=(A, B), draft=draft, params=BLOCK, seed=seed) for seed in range(100)]
    result = answers(asks, "cpu")
    assert result.num_accepted.tolist() == [0] * 100
    assert tokens_of(result) == [[B]] * 100
    # Alone the second token stands for sure, and its ratio lifts c from a half to 1.
    target = logits([0.5, 0.5], [0.5, 0.5], [0.5, 0.5])
    draft = torch.tensor([[0.0, -INF], [0.0, -INF]])
    asks = [Ask(target=target, ids=(A, B), draft=draft, params=BLOCK, seed=seed) for seed in range(100)]
    assert accepted(asks) == [2] * 100


def test_a_denominator_of_0() -> None:
    """c_1 = 1 and p = q at row 1: S_1 = 0, and h_1 = 1. The residual has no mass, and the draw is from p."""
    target, draft = logits([0.5, 0.5], [1.0, 0.0], [1.0, 0.0]), torch.tensor([[0.0, 0.0], [0.0, -INF]])
    asks = [Ask(target=target, ids=(A, B), draft=draft, params=BLOCK, seed=seed) for seed in range(50)]
    result = answers(asks, "cpu")
    assert result.num_accepted.tolist() == [1] * 50
    assert tokens_of(result) == [[A, A]] * 50


def test_nothing_stands_past_the_vocabulary() -> None:
    asks = [
        Ask(target=torch.zeros(3, 3), ids=(4, 0), draft=torch.zeros(2, 5), params=BLOCK, seed=seed)
        for seed in range(50)
    ]
    assert accepted(asks) == [0] * 50


@pytest.mark.parametrize("method", [Method.STANDARD, Method.BLOCK])
def test_mean_of_accepted_tokens(method: Method) -> None:
    """10/9 for standard and 11/9 for block, by the table of docs/semantics.md; six standard errors of the mean."""
    n = 40_000
    drawn = (np.random.default_rng(0).random(2 * n) >= 2 / 3).astype(np.int64)
    step = Step(
        target_logits=TARGET.repeat(n, 1),
        draft_token_ids=torch.from_numpy(drawn),
        draft_lengths=[2] * n,
        draft_blocks=[DraftBlock(DRAFT.repeat(n, 1))],
        params=[SamplingParams(method=method, logprobs_modes=())],
        seeds=range(n),
        positions=[0] * n,
    )
    t = verify(step, backend="cpu").num_accepted.astype(np.float64)
    want = {Method.STANDARD: 10 / 9, Method.BLOCK: 11 / 9}[method]
    assert abs(t.mean() - want) < 6 * t.std() / n**0.5


def planned(step: Step) -> Batch:
    return plan(step, host_columns(step), torch.device("cpu")).batch


def true_mass(p: NDArray[np.float64], q: NDArray[np.float64], c: float) -> float:
    return float(np.maximum(c * p - q, 0).sum())


@pytest.mark.parametrize("spread", [0.1, 1.0, 6.0])
@pytest.mark.parametrize("vocab", [3, 127, 4097, 50_000])
def test_masses_are_within_a_millionth(spread: float, vocab: int) -> None:
    generator = torch.Generator().manual_seed(vocab)
    target = torch.randn(8, vocab, generator=generator) * spread
    draft = target[[0, 1, 2, 4, 5, 6]] + torch.randn(6, vocab, generator=generator) * 0.3
    c = np.array([1.0, 0.9, 0.5, 1.0, 1e-3, 0.99])
    for block, temperatures in ((DraftBlock(draft), (0.7, 1.3)), (None, (0.7, 1.3))):
        step = Step(
            target_logits=target,
            draft_token_ids=torch.zeros(6, dtype=torch.int64),
            draft_lengths=[3, 3],
            draft_blocks=[] if block is None else [block],
            params=[
                SamplingParams(method=Method.BLOCK, temperature=temperatures[0], draft_temperature=temperatures[1])
            ],
            seeds=[0, 0],
            positions=[0, 0],
        )
        batch = planned(step)
        rows, draft_rows = lazy_stats(batch)
        row = np.array([0, 1, 2, 4, 5, 6])
        got = _residual_mass(Columns.of(batch), rows, draft_rows, row, c)
        for n in range(6):
            q = np.eye(1, vocab)[0] if block is None else true_softmax(draft[n], temperatures[1])
            want = true_mass(true_softmax(target[row[n]], temperatures[0]), q, c[n])
            if block is None:  # without the token, whatever p is there
                want = c[n] * (1 - true_softmax(target[row[n]], temperatures[0])[0])
            assert abs(got[n] - want) < 1e-6


def needs(target: list[list[float]], draft: list[list[float]], ids: tuple[int, ...]) -> tuple[int, int]:
    result = answers([Ask(target=torch.tensor(target), ids=ids, draft=torch.tensor(draft), params=BLOCK)], "cpu")
    return int(result.status[0]), int(result.bad_row[0])


def test_every_row_up_to_the_first_placeholder_is_needed() -> None:
    falls, fine = [-INF, 0.0], [0.0, 0.0]
    for bad in ([NAN, 0.0], [0.0, INF], [-INF, -INF]):
        # The first token falls for certain, and all rows are needed all the same.
        assert needs([falls, fine, bad], [fine, fine], (A, A)) == (Status.INVALID_LOGITS, 2)
        assert needs([falls, bad, bad], [fine, fine], (A, A)) == (Status.INVALID_LOGITS, 1)
        assert needs([falls, fine, fine], [fine, bad], (A, A)) == (Status.INVALID_LOGITS, 1)
        assert needs([falls, fine, bad], [fine, bad], (A, A)) == (Status.INVALID_LOGITS, 1)
        assert needs([bad, fine, fine], [fine, fine], (A, A)) == (Status.INVALID_LOGITS, 0)
        # Behind a placeholder nothing is, nor the draft row beside it; its target row is.
        assert needs([fine, fine, bad], [fine, bad], (A, -1)) == (Status.OK, -1)
        assert needs([fine, bad, fine], [fine, fine], (A, -1)) == (Status.INVALID_LOGITS, 1)
        assert needs([fine, bad, bad], [bad, bad], (-1, A)) == (Status.OK, -1)
    assert needs([fine, fine, fine], [fine, fine], (A, A)) == (Status.OK, -1)


def test_a_run_ends_at_the_first_placeholder() -> None:
    """With k = 1 the second token is not judged, and at t = 1 the draw is from p of row 1."""
    target, draft = logits([0.5, 0.5], [0.25, 0.75], [1.0, 0.0]), logits([0.8, 0.2], [0.5, 0.5])
    asks = [Ask(target=target, ids=(A, -1), draft=draft, params=BLOCK, seed=seed) for seed in range(SEEDS)]
    result = answers(asks, "cpu")
    want = []
    for seed in range(SEEDS):
        if u(seed, 0) < 0.625:
            want.append([A, int(true_uniform(seed, 1, 1, 0) >= 0.25)])
        else:
            want.append([B])
    assert tokens_of(result) == want
