"""The lossless methods emit the target's law, at every position and in every adjacent pair, across steps.

A chi-square below df + 10 sqrt(2 df) is demanded. Each planted fault below must exceed that limit, so that a pass
means something at these numbers of seeds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.oracle import methods, philox
from tests.oracle.builders import rows, run
from tests.oracle.laws import AcceptUniform, Models, chi_square, decode, excesses
from tests.oracle.methods import Decision, Stage, block, standard, strict
from tests.oracle.processing import softmax
from tests.oracle.request import Floats

pytestmark = pytest.mark.distribution

SEEDS = 8_000
LENGTH = 6
"""At k = 3 a step emits at most 4 tokens, so every sequence takes at least two steps."""


def table(size: int, seed: int, columns: int | None = None) -> Floats:
    """Random next-token distributions; with `columns` only the first so many ids have mass."""
    logits = np.random.default_rng(seed).normal(size=(size, size)) * 1.2
    logits[:, columns:] = -np.inf if columns else logits[:, columns:]
    weights = np.exp(logits)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float64)


TARGET = table(16, 1)
MODELS = {
    "draft logits": Models(TARGET, table(16, 2)),
    "point mass": Models(TARGET, table(16, 2), point_mass=True),
    "reduced vocabulary": Models(TARGET, table(16, 3, columns=7)),
}
# Two tokens, and a target and draft that differ much: here block's reuse of uniforms shows most.
NARROW = Models(np.array([[0.7, 0.3], [1.0, 0.0]]), np.array([[0.1, 0.9], [1.0, 0.0]]))


def worst(models: Models, method: Callable[[Stage], Decision], accept: AcceptUniform = philox.accept_uniform) -> float:
    """The largest chi-square over its limit."""
    return max(excesses(models, [decode(models, method, seed, LENGTH, 3, accept) for seed in range(SEEDS)]))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("method", [standard, strict, block])
def test_law_across_steps(method: Callable[[Stage], Decision], kind: str) -> None:
    assert worst(MODELS[kind], method) < 1.0


@pytest.mark.parametrize("method", [standard, strict, block])
def test_law_over_two_tokens(method: Callable[[Stage], Decision]) -> None:
    assert worst(NARROW, method) < 1.0


def without_s(seed: int, position: int, row: int) -> float:
    return philox.uniform(seed, position + row, philox.ACCEPT, 0)


def accept_with_the_draw_s_uniform(seed: int, position: int, row: int) -> float:
    return philox.draw_uniform(seed, position, row)


def redraw_from_p(stage: Stage) -> Decision:
    """Standard verification that draws a rejected position from p instead of the residual."""
    decision = standard(stage)
    p = stage.target(decision.accepted).p
    return Decision(decision.accepted, methods.draw(stage, decision.accepted, p))


def test_the_law_notices_a_uniform_without_s() -> None:
    assert worst(NARROW, block, without_s) > 1.0


def test_the_law_notices_a_reused_uniform() -> None:
    assert worst(MODELS["draft logits"], standard, accept_with_the_draw_s_uniform) > 1.0


def test_the_law_notices_a_redraw_from_p() -> None:
    assert worst(MODELS["draft logits"], redraw_from_p) > 1.0


@pytest.mark.parametrize("method", ["standard", "block"])
@pytest.mark.parametrize("draft_temperature", [None, 0.5])
def test_opposite_logits_through_the_whole_request(method: str, draft_temperature: float | None) -> None:
    """V = 16, draft logits = -target logits: the token at position 0, with processing, against the filtered p."""
    logits = rows(np.random.default_rng(5).normal(size=16).tolist())
    q = softmax(-logits[0], draft_temperature or 1.0)
    seeds = 3_000
    counts = np.zeros(16)
    for seed in range(seeds):
        drafted = int(np.searchsorted(np.cumsum(q), philox.draft_uniform(seed, 0, 0), side="right"))
        outcome = run(
            np.tile(logits, (2, 1)), [drafted], -logits, seed=seed, method=method, top_k=9,
            draft_temperature=draft_temperature, logprobs_modes=(),
        )  # fmt: skip
        counts[outcome.token_ids[0]] += 1
    p = softmax(np.where(logits[0] >= np.sort(logits[0])[-9], logits[0], -np.inf).astype(np.float32), 1.0)
    statistic, df = chi_square(counts, p * seeds)
    assert statistic < df + 10 * np.sqrt(2 * df)


def test_block_accepts_more_than_standard_in_the_mean() -> None:
    """10/9 against 11/9 at these probabilities; standard errors of the means are below 0.011."""
    models = Models(np.array([[1 / 3, 2 / 3]] * 2), np.array([[2 / 3, 1 / 3]] * 2))
    means = []
    for method in (standard, block):
        accepted: list[int] = []

        def counting(
            stage: Stage, decide: Callable[[Stage], Decision] = method, into: list[int] = accepted
        ) -> Decision:
            decision = decide(stage)
            into.append(decision.accepted)
            return decision

        for seed in range(SEEDS):
            decode(models, counting, seed, 1, 2)
        means.append(float(np.mean(accepted)))
    assert means[0] == pytest.approx(10 / 9, abs=0.05)
    assert means[1] == pytest.approx(11 / 9, abs=0.05)
