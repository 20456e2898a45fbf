"""Which draft tokens stand, on cases small enough to work out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from sampler_kernels.batch import Batch
from sampler_kernels.outcome import DrawKind
from sampler_kernels.rejection.reference import rejection
from sampler_kernels.result import Status
from tests.kernels.steps import Request, lazy_stats, make_batch, run, true_softmax, true_uniform

NAN, INF = float("nan"), float("inf")


def logits(*rows: list[float]) -> Tensor:
    """Rows of probabilities as logits."""
    return torch.tensor(rows, dtype=torch.float64).log().float()


def decide(*requests: Request) -> tuple[list[int], list[int], list[int], list[int]]:
    """(num_accepted, status, bad_row, draw_kind) of each request."""
    batch = make_batch(requests)
    d = rejection(batch, *lazy_stats(batch))
    return d.num_accepted.tolist(), d.status.tolist(), d.bad_row.tolist(), d.draw_kind.tolist()


TARGET = logits([0.0, 0.1, 0.6, 0.3], [1.0, 0.0, 0.0, 0.0], [0.7, 0.1, 0.1, 0.1])
DRAFT = logits([0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.1])


@pytest.mark.parametrize("seed", range(20))
def test_the_outcome_no_seed_can_change(seed: int) -> None:
    """2 is twice as likely under the target and stands; then 1 is impossible, and 0 is all there is."""
    outcome = run([Request(TARGET, [2, 1], DRAFT, seed=seed)])
    assert outcome.of(0) == [2, 0]
    assert outcome.decision.num_accepted.tolist() == [1]


def test_greedy_stops_at_the_first_mismatch_and_takes_the_lowest_of_equals() -> None:
    target = torch.tensor([[0.0, 3.0, 3.0], [5.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
    for ids, accepted, emitted in (([1, 0], 2, [1, 0, 0]), ([2, 0], 0, [1]), ([1, 1], 1, [1, 0]), ([-1, 0], 0, [1])):
        outcome = run([Request(target, ids, temperature=0.0)])
        assert outcome.decision.num_accepted.tolist() == [accepted]
        assert outcome.of(0) == emitted


def test_accept_test_is_strict_and_in_float64() -> None:
    """Stands iff u q < p, for a thousand seeds, next to the threshold as computed in fp64."""
    target, draft = torch.tensor([[0.3, -1.0, 2.0], [0.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.5, 0.0]])
    p, q = true_softmax(target[0], 0.7)[0], true_softmax(draft[0], 0.4)[0]
    seeds = range(1000)
    accepted = decide(*(Request(target, [0], draft, None, 0.7, 0.4, seed=s, position=5) for s in seeds))[0]
    assert accepted == [int(true_uniform(s, 5, 0, 0) * q < p) for s in seeds]
    assert 0 < sum(accepted) < 1000


def test_zero_under_the_target_never_stands_and_zero_under_the_draft_always_does() -> None:
    target = torch.tensor([[0.0, -INF], [0.0, 0.0]])
    draft = torch.tensor([[-INF, 0.0]])
    for seed in range(50):
        assert decide(Request(target, [1], draft, seed=seed))[0] == [0]
        assert decide(Request(target, [0], draft, seed=seed))[0] == [1]


def test_point_mass_stands_with_probability_p() -> None:
    target = logits([0.25, 0.75], [0.5, 0.5])
    seeds = range(2000)
    # No draft logits; and draft logits that a draft temperature of 0 keeps from being read.
    for draft, draft_temperature in ((None, None), (torch.full((1, 2), NAN), 0.0)):
        accepted = decide(*(Request(target, [0], draft, None, 1.0, draft_temperature, seed=s) for s in seeds))[0]
        assert accepted == [int(true_uniform(s, 0, 0, 0) < 0.25) for s in seeds]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_stands_from_a_placeholder_on(temperature: float) -> None:
    target = torch.tensor([[9.0, 0.0]]).repeat(4, 1)
    accepted, status, _, kind = decide(Request(target, [0, -1, 0], temperature=temperature, seed=3))
    assert (accepted, status) == ([1], [Status.OK])
    assert kind == [DrawKind.TARGET if temperature else DrawKind.ARGMAX]


def test_ids_past_the_target_vocabulary_never_stand() -> None:
    """Legal where the draft's vocabulary is the larger one; the residual beside them still takes q away."""
    target, draft = torch.zeros(2, 3), torch.zeros(1, 5)
    for temperature in (0.0, 1.0):
        for seed in range(20):
            outcome = run([Request(target, [4], draft, temperature=temperature, seed=seed)])
            assert outcome.decision.num_accepted.tolist() == [0]
            assert 0 <= outcome.of(0)[0] < 3


def test_draft_id_map() -> None:
    """Draft column i is target id map[i]: q of the token is its column's, and 0 for an id the map lacks."""
    target = torch.tensor([[0.0, 1.0, 2.0, 3.0], [0.0] * 4])
    draft = torch.tensor([[2.0, -1.0]])
    id_map = np.array([3, 1])
    p, q = true_softmax(target[0], 1.0), true_softmax(draft[0], 1.0)
    seeds = range(500)
    for token, column in ((3, 0), (1, 1)):
        accepted = decide(*(Request(target, [token], draft, id_map, seed=s) for s in seeds))[0]
        assert accepted == [int(true_uniform(s, 0, 0, 0) * q[column] < p[token]) for s in seeds]


def test_only_needed_rows_can_fail_a_request() -> None:
    """Bad rows past the first rejection are moot; the smallest needed one is named, target or draft."""
    stands, falls = [0.0, -INF], [-INF, 0.0]
    nan, inf, nothing = [NAN, 0.0], [0.0, INF], [-INF, -INF]
    fine = torch.zeros(2, 2)

    def ask(target: list[list[float]], draft: Tensor | None = None, ids: tuple[int, ...] = (0, 0)) -> tuple[int, int]:
        _, status, bad_row, kind = decide(Request(torch.tensor(target), ids, draft))
        assert (kind == [DrawKind.NOTHING]) == (status == [Status.INVALID_LOGITS])
        return status[0], bad_row[0]

    assert ask([falls, nan, nan]) == (Status.OK, -1)
    assert ask([stands, falls, nan]) == (Status.OK, -1)
    for row in (nan, inf, nothing):
        assert ask([row, falls, falls]) == (Status.INVALID_LOGITS, 0)
        assert ask([stands, row, falls]) == (Status.INVALID_LOGITS, 1)
        assert ask([stands, stands, row]) == (Status.INVALID_LOGITS, 2)
        # A draft row counts where its token is compared, whether or not the token would stand.
        assert ask([stands, stands, stands], torch.tensor([[0.0, 0.0], row])) == (Status.INVALID_LOGITS, 1)
        assert ask([stands, falls, stands], torch.tensor([[0.0, 0.0], row])) == (Status.INVALID_LOGITS, 1)
        assert ask([falls, stands, stands], torch.tensor([[0.0, 0.0], row])) == (Status.OK, -1)
        # Nothing is compared at a placeholder.
        assert ask([stands, stands, stands], torch.tensor([[0.0, 0.0], row]), (0, -1)) == (Status.OK, -1)
    assert ask([stands, nan, nan], torch.tensor([nan, nan])) == (Status.INVALID_LOGITS, 0)
    # A NaN in the column of a token that would stand without it.
    assert ask([[0.0, NAN], stands, stands], fine) == (Status.INVALID_LOGITS, 0)


def test_one_bad_request_leaves_the_others_alone() -> None:
    generator = torch.Generator().manual_seed(5)
    targets = [torch.randn((4, 300), generator=generator) for _ in range(8)]
    requests = [Request(t, [int(t[j].argmax()) for j in range(3)], seed=s) for s, t in enumerate(targets)]
    clean = run(requests)
    requests[3].target = targets[3].clone()
    requests[3].target[0, 299] = NAN
    spoilt = run(requests)
    assert spoilt.decision.status.tolist() == [Status.OK] * 3 + [Status.INVALID_LOGITS] + [Status.OK] * 4
    assert spoilt.of(3) == []
    for r in set(range(8)) - {3}:
        assert spoilt.of(r) == clean.of(r)


def test_marked_ids_fail_their_request_alone() -> None:
    def mark(batch: Batch) -> Batch:
        batch.draft_token_ids[3] = -2  # the last draft token of the second request, behind a placeholder
        return batch

    target = torch.zeros(3, 4)
    batch = mark(
        make_batch([Request(target, [0, 1]), Request(target, [-1, 1]), Request(target[:1]), Request(target, [2, 2])])
    )
    d = rejection(batch, *lazy_stats(batch))
    assert d.status.tolist() == [Status.OK, Status.INVALID_DRAFT_TOKEN, Status.OK, Status.OK]
    assert d.draw_kind[1] == DrawKind.NOTHING
    assert d.num_accepted[1] == 0


@pytest.mark.parametrize(("p", "q"), [(1 / 3, 2 / 3), (0.9, 0.2)])
def test_expected_accepted_tokens(p: float, q: float) -> None:
    """Two tokens, k = 2: each stands with probability a = min(p, q) + min(1 - p, 1 - q), so a + a^2 are expected."""
    a = min(p, q) + min(1 - p, 1 - q)
    n = 40_000
    target, draft = logits([p, 1 - p]).repeat(n * 3, 1), logits([q, 1 - q]).repeat(n * 2, 1)
    drawn = (np.random.default_rng(0).random(2 * n) >= q).astype(int)
    batch = make_batch([Request(target[:3], [0, 0], draft[:2])])
    count = torch.arange(n + 1, dtype=torch.int32)
    whole = Batch(
        vocab_size=2,
        target=type(batch.target)((target,), np.zeros(3 * n, np.int32), np.arange(3 * n)),
        draft=type(batch.draft)((draft,), np.zeros(2 * n, np.int32), np.arange(2 * n)),
        draft_lengths=torch.full((n,), 2, dtype=torch.int32),
        cu_num_logits=count * 3,
        cu_drafts=count * 2,
        draft_token_ids=torch.from_numpy(drawn).int(),
        draft_row=torch.arange(2 * n, dtype=torch.int32),
        inverse_maps=(),
        draft_map=torch.full((2 * n,), -1, dtype=torch.int32),
        method=batch.method.repeat(n),
        temperature=batch.temperature.repeat(n),
        draft_temperature=batch.draft_temperature.repeat(n),
        seed=torch.arange(n),
        position=batch.position.repeat(n),
    )
    accepted = rejection(whole, *lazy_stats(whole)).num_accepted.double()
    # Six standard errors of the mean.
    assert abs(accepted.mean().item() - (a + a * a)) < 6 * accepted.std().item() / n**0.5
