"""Draws: inside the vocabulary, never a token without mass, and the inverse CDF that the uniform names."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sampler_kernels.batch import Batch
from sampler_kernels.draw.reference import _first_above, draw
from sampler_kernels.layout import TILE
from sampler_kernels.outcome import Decision, DrawKind
from sampler_kernels.rejection.reference import rejection
from tests.kernels.steps import Request, lazy_stats, make_batch, run, true_request, true_softmax, true_uniform

INF = float("inf")
WIDTHS = [1, 3, 127, 4095, 4096, 4097, 8193, 151_936]


@pytest.mark.parametrize("width", WIDTHS)
def test_bonus_draws_are_the_inverse_cdf(width: int) -> None:
    row = torch.randn((1, width), generator=torch.Generator().manual_seed(width)) * 3
    prefix = true_softmax(row[0], 0.8).cumsum()
    requests = [Request(row, temperature=0.8, seed=s, position=9) for s in range(60)]
    drawn = run(requests).emitted.tolist()
    for s, token in enumerate(drawn):
        u = true_uniform(s, 9, 1, 0) * prefix[-1]
        # float32 masses move a step of the CDF by at most 1e-6.
        assert prefix[token] > u - 1e-6
        assert token == 0 or prefix[token - 1] <= u + 1e-6


@pytest.mark.parametrize("width", [*WIDTHS[1:], 3 * TILE])
@pytest.mark.parametrize("with_draft", [False, True])
def test_never_a_token_without_mass(width: int, with_draft: bool) -> None:
    """A single token with mass, wherever it lies: the last tile empty, or all but the last id."""
    for alive in {0, width // 2, width - 1, min(width - 1, TILE - 1), min(width - 1, TILE)}:
        target = torch.full((2, width), -INF)
        target[:, alive] = 2.0
        other = (alive + 1) % width
        draft = None
        if with_draft:
            draft = torch.zeros(1, width)
        requests = [Request(target, [other], draft, seed=s) for s in range(10)]
        requests += [Request(target[:1], seed=s) for s in range(10)]
        outcome = run(requests)
        assert {outcome.of(r)[-1] for r in range(len(requests))} == {alive}


def test_thresholds_at_and_past_the_total() -> None:
    """A threshold that rounding put at the total falls to the last entry with mass, not to what lies behind it."""
    masses = np.array([[0.0, 0.25, 0.0, 0.75, 0.0, 0.0]])
    for threshold, place in ((0.0, 1), (0.25, 3), (0.2499, 1), (1.0, 3), (1.5, 3), (np.nextafter(1, 0), 3)):
        got, rest = _first_above(masses, np.array([threshold]))
        assert got.tolist() == [place]
        assert rest.tolist() == [threshold - (0.25 if place == 3 else 0.0)]


def test_residual_beside_a_point_mass_is_p_without_the_token() -> None:
    """Also where the token holds all but 1e-5 of the mass, in the same tile and in another."""
    width = TILE + 100
    for token, rest in ((7, [3, 9]), (TILE + 5, [2, TILE + 50])):
        target = torch.full((2, width), -INF)
        target[:, token], target[0, rest] = 12.0, torch.tensor([0.0, 1.0])
        requests = [Request(target, [token], seed=s) for s in range(40)]
        batch = make_batch(requests)
        decision = redrawn(batch)
        drawn = draw(batch, *lazy_stats(batch), decision).tolist()
        want = [rest[int(true_uniform(s, 0, 1, 0) >= 1 / (1 + np.e))] for s in range(40)]
        assert drawn == want


def redrawn(batch: Batch) -> Decision:
    """As if the first draft token of every request had been rejected."""
    decision = rejection(batch, *lazy_stats(batch))
    decision.num_accepted[:] = 0
    decision.draw_kind[:] = DrawKind.RESIDUAL
    return decision


@pytest.mark.parametrize("with_draft", [False, True])
def test_residual_without_mass_falls_back_to_p(with_draft: bool) -> None:
    """Where p = q nothing is left over, and beside a point mass on the only possible token neither."""
    if with_draft:
        target = torch.randn((2, 5000), generator=torch.Generator().manual_seed(0))
        draft = target[:1].clone()
    else:
        target, draft = torch.full((2, 5000), -INF), None
        target[:, 4321] = 0.5
    requests = [Request(target, [4321], draft, seed=s) for s in range(30)]
    batch = make_batch(requests)
    drawn = draw(batch, *lazy_stats(batch), redrawn(batch)).tolist()
    p = true_softmax(target[0], 1.0).cumsum()
    assert drawn == [int(np.searchsorted(p, true_uniform(s, 0, 1, 0) * p[-1], "right")) for s in range(30)]


def test_draft_temperature_shapes_the_residual() -> None:
    """Chi-square of the emitted token against p: accept test and residual both use softmax(draft / 0.5)."""
    width, n = 12, 40_000
    generator = torch.Generator().manual_seed(3)
    target, draft = torch.randn((2, width), generator=generator), torch.randn((1, width), generator=generator)
    q = true_softmax(draft[0], 0.5).cumsum()
    ids = [int(np.searchsorted(q, true_uniform(s, 0, 2, 0) * q[-1], "right")) for s in range(n)]
    one = make_batch([Request(target, [0], draft, None, 1.0, 0.5)])
    count = torch.arange(n + 1, dtype=torch.int32)
    batch = Batch(
        vocab_size=width,
        target=type(one.target)((target,), np.zeros(2 * n, np.int32), np.tile(np.arange(2), n)),
        draft=type(one.draft)((draft,), np.zeros(n, np.int32), np.zeros(n, np.int64)),
        draft_lengths=torch.ones(n, dtype=torch.int32),
        cu_num_logits=count * 2,
        cu_drafts=count,
        draft_token_ids=torch.tensor(ids, dtype=torch.int32),
        draft_row=torch.arange(n, dtype=torch.int32),
        inverse_maps=(),
        draft_map=torch.full((n,), -1, dtype=torch.int32),
        method=one.method.repeat(n),
        temperature=one.temperature.repeat(n),
        draft_temperature=one.draft_temperature.repeat(n),
        seed=torch.arange(n),
        position=one.position.repeat(n),
    )
    stats = lazy_stats(batch)
    decision = rejection(batch, *stats)
    final = draw(batch, *stats, decision)
    first = torch.where(decision.num_accepted > 0, batch.draft_token_ids, final)
    seen = np.bincount(first.numpy(), minlength=width)
    expected = true_softmax(target[0], 1.0) * n
    df = width - 1
    assert ((seen - expected) ** 2 / expected).sum() < df + 10 * np.sqrt(2 * df)


def test_reduced_vocabulary_residual() -> None:
    """Ids the map lacks keep all of p; the others lose their column's q. Several maps in one batch."""
    generator = torch.Generator().manual_seed(8)
    width = TILE + 900
    requests = []
    for s in range(24):
        id_map = np.random.default_rng(s % 3).permutation(width)[:700] if s % 4 else None
        target = torch.randn((2, width), generator=generator) * 2
        draft = torch.randn((1, 700 if id_map is not None else width), generator=generator)
        token = int(id_map[int(draft[0].argmax())]) if id_map is not None else int(draft[0].argmax())
        requests.append(Request(target, [token], draft, id_map, seed=s))
    outcome = run(requests)
    for r, request in enumerate(requests):
        truth = true_request(request)
        assert outcome.of(r) == truth.tokens or truth.margin < 1e-6
