"""Small cases whose answers are known without computing a step, and generators of cases like each of them."""

from __future__ import annotations

import mmap
from math import log, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sampler_kernels import LogprobsMode, Method, SamplingParams, Status
from tests.backends import BACKENDS
from tests.distribution.cases import Case
from tests.distribution.chi_square import Floats
from tests.distribution.harness import accepted, waits_for
from tests.docs.philox import uniform
from tests.kernels.asking import Ask, answers, shares, tokens_of

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

SEED = st.integers(0, 2**64 - 1)
SHAPE = st.integers(0, 2**32 - 1)
"""Seed of the generator that makes a case."""
QUIET = SamplingParams(logprobs_modes=())


def logits(*rows: list[float] | Floats) -> Tensor:
    with np.errstate(divide="ignore"):
        return torch.from_numpy(np.log(np.array(rows, np.float64))).float()


# ---- an answer that no seed can change ----


@given(seed=SEED)
def test_certain_answer(backend: str, seed: int) -> None:
    ask = Ask(
        target=logits([0, 0.1, 0.6, 0.3], [1, 0, 0, 0], [0.7, 0.1, 0.1, 0.1]),
        ids=[2, 1],
        draft=logits([0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.1]),
        seed=seed,
    )
    assert tokens_of(answers([ask], backend)) == [[2, 0]]


@given(seed=SEED, shape=SHAPE)
def test_certain_answers(backend: str, seed: int, shape: int) -> None:
    """Tokens with p > q stand for every seed; then p is certain of a token, in the place of a draft or as the bonus."""
    generator = np.random.default_rng(shape)
    vocab, k = int(generator.integers(2, 40)), int(generator.integers(1, 6))
    stands = int(generator.integers(0, k + 1))
    p, q = generator.dirichlet(np.ones(vocab), k + 1), generator.dirichlet(np.ones(vocab), k)
    ids = np.argmax(p[:k] - q, axis=1)
    last = int(generator.integers(vocab))
    if stands < k:
        ids[stands] = (last + 1) % vocab
    p[stands] = np.eye(vocab)[last]
    sends_draft = bool(generator.integers(2))
    if not sends_draft:
        # Beside a point mass only certainty stands for every seed.
        p[:stands] = np.eye(vocab)[ids[:stands]]
    ask = Ask(target=logits(*p), ids=ids.tolist(), draft=logits(*q) if sends_draft else None, seed=seed, params=QUIET)
    assert tokens_of(answers([ask], backend)) == [[*ids[:stands].tolist(), last]]


# ---- how many draft tokens stand ----


def assert_mean_accepted(p: list[float], q: list[float], k: int, method: Method, mean: float, backend: str) -> None:
    """Within ten standard errors, the count's variance being at most k^2 / 4: a chance of exp(-50)."""
    params = SamplingParams(method=method, logprobs_modes=())
    case = Case(name="", target=logits(p), draft=logits(q), k=k, params=params)
    waiting = waits_for(case)
    if waiting:
        pytest.skip(waiting)
    seeds = 100_000
    found = accepted(case, seeds=seeds, backend=backend).mean()
    assert found == pytest.approx(mean, abs=10 * k / 2 / sqrt(seeds))


@pytest.mark.parametrize(("method", "mean"), [(Method.STANDARD, 10 / 9), (Method.BLOCK, 11 / 9)])
def test_two_tokens(backend: str, method: Method, mean: float) -> None:
    assert_mean_accepted([1 / 3, 2 / 3], [2 / 3, 1 / 3], 2, method, mean, backend)


@pytest.mark.parametrize("shape", range(4))
def test_mean_accepted_by_standard(backend: str, shape: int) -> None:
    """Each token stands with probability sum min(p, q), as long as those before it do."""
    generator = np.random.default_rng(shape)
    vocab, k = int(generator.integers(2, 12)), int(generator.integers(1, 6))
    p, q = generator.dirichlet(np.ones(vocab)), generator.dirichlet(np.ones(vocab))
    overlap = float(np.minimum(p, q).sum())
    mean = sum(overlap**j for j in range(1, k + 1))
    assert_mean_accepted(p.tolist(), q.tolist(), k, Method.STANDARD, mean, backend)


# ---- vocabularies of every shape ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocab", [1, 2, 3, 127, 128, 129, 4095, 4096, 4097, 8193, 151_936])
def test_no_id_without_mass(backend: str, vocab: int, dtype: torch.dtype) -> None:
    """The end of the row holds nothing, a whole tile where there are several, nor does half of the rest.

    Uniforms reach from one end of (0, 1) to the other; the nearest to both among 100,000 seeds are taken.
    """
    generator = torch.Generator().manual_seed(vocab)
    numbers = np.arange(100_000, dtype=np.uint64)
    order = np.argsort(uniform(numbers, np.zeros_like(numbers), 1, 0))
    row = torch.randn(2, vocab, generator=generator).to(dtype)
    allowed = torch.rand(vocab, generator=generator) < 0.5
    allowed[vocab - min(vocab // 2, 4200) :] = False
    allowed[0] = True
    row[:, ~allowed] = -torch.inf
    draft = torch.randn(1, vocab, generator=generator).to(dtype)
    masked = int((~allowed).nonzero()[-1]) if vocab > 1 else 0
    asks = []
    for seed in order[[0, 1, 2, 50_000, -3, -2, -1]].tolist():
        asks += [
            Ask(target=row[:1], params=QUIET, seed=seed),
            Ask(target=row, ids=[masked], params=QUIET, seed=seed),
            Ask(target=row, ids=[masked], draft=draft, params=QUIET, seed=seed),
        ]
    found = tokens_of(answers(asks, backend))
    assert all(allowed[x] for tokens in found for x in tokens)
    assert vocab == 1 or all(len(tokens) == 1 for tokens in found), "a token without mass never stands"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_of_more_than_2_31_elements(backend: str, dtype: torch.dtype) -> None:
    """Rows so far apart that an element's number needs more than 32 bits; the pages between are never touched."""
    stride, vocab, k = (2**31 + 12_345) // 2, 5000, 2
    generator = torch.Generator().manual_seed(3)
    rows, drafts = torch.randn(k + 1, vocab, generator=generator), torch.randn(k, vocab, generator=generator)
    rows[:, 7], drafts[:, 7] = 9.0, 9.0  # Both draft tokens stand, so that the last row is drawn from.
    near = Ask(target=rows.to(dtype), ids=[7, 7], draft=drafts.to(dtype), seed=1, params=SamplingParams(top_logprobs=5))
    far = Ask(
        target=_far_apart(near.target, stride),
        ids=near.ids,
        draft=_far_apart(drafts.to(dtype), 2 * stride),
        seed=1,
        params=near.params,
    )
    expected = answers([near], backend)
    assert expected.num_accepted.tolist() == [k]
    assert shares(answers([far], backend)) == shares(expected)


def _far_apart(rows: Tensor, stride: int) -> Tensor:
    """A copy whose rows lie ``stride`` elements apart, in memory that is reserved and otherwise untouched."""
    length = (len(rows) - 1) * stride + rows.shape[1]
    no_reserve = 0x4000  # MAP_NORESERVE of Linux, which mmap names from Python 3.13 on
    pages = mmap.mmap(-1, length * rows.element_size(), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    apart = torch.frombuffer(pages, dtype=rows.dtype).as_strided(rows.shape, (stride, 1))
    return apart.copy_(rows)


# ---- ragged batches ----


def random_ask(generator: np.random.Generator, vocab: int, k: int, temperature: float) -> Ask:
    return Ask(
        target=torch.from_numpy(generator.normal(size=(k + 1, vocab)) * 2).float(),
        ids=generator.integers(vocab, size=k).tolist(),
        draft=torch.from_numpy(generator.normal(size=(k, vocab))).float() if generator.random() < 0.7 else None,
        params=SamplingParams(temperature=temperature, top_logprobs=int(generator.integers(0, 5))),
        seed=int(generator.integers(2**63)),
        position=int(generator.integers(2**40)),
    )


def test_ragged_batch(backend: str) -> None:
    generator = np.random.default_rng(0)
    asks = [random_ask(generator, 50, k, t) for k, t in zip([3, 0, 1], [0.0, 0.7, 1.0], strict=True)]
    alone = [shares(answers([ask], backend))[0] for ask in asks]
    assert shares(answers(asks, backend)) == alone


@settings(max_examples=30)
@given(shape=SHAPE)
def test_ragged_batches(backend: str, shape: int) -> None:
    generator = np.random.default_rng(shape)
    vocab, count = int(generator.choice([2, 17, 300])), int(generator.integers(1, 9))
    temperatures = generator.choice([0.0, 0.3, 0.7, 1.0, 2.0], count)
    asks = [random_ask(generator, vocab, int(generator.integers(0, 6)), float(t)) for t in temperatures]
    alone = [shares(answers([ask], backend))[0] for ask in asks]
    assert shares(answers(asks, backend)) == alone


# ---- bad rows ----


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("shape", range(8))
def test_one_bad_row_in_a_batch_of_eight(backend: str, value: float, shape: int) -> None:
    generator = np.random.default_rng(shape)
    asks = [random_ask(generator, 30, k, t) for k, t in zip([0, 1, 2, 3] * 2, [1.0, 0.0, 0.5, 2.0] * 2, strict=True)]
    before = shares(answers(asks, backend))
    r = int(generator.integers(8))
    asks[r].target[0, int(generator.integers(30))] = value
    result = answers(asks, backend)
    assert (result.status == np.where(np.arange(8) == r, Status.INVALID_LOGITS, Status.OK)).all()
    assert (tokens_of(result)[r], result.num_accepted[r], result.bad_row[r]) == ([], 0, 0)
    after = shares(result)
    assert after[:r] + after[r + 1 :] == before[:r] + before[r + 1 :]


# ---- filters at their edges ----


def possible_ids(row: Tensor, params: SamplingParams, backend: str) -> list[int]:
    """All that 4,000 seeds draw."""
    waiting = waits_for(Case(name="", target=row, draft=row, k=1, params=params))
    if waiting:
        pytest.skip(waiting)
    found = tokens_of(answers([Ask(target=row, params=params, seed=seed) for seed in range(4000)], backend))
    return sorted({token for tokens in found for token in tokens})


def test_top_p_among_equals(backend: str) -> None:
    params = SamplingParams(top_p=0.8, logprobs_modes=())
    assert possible_ids(torch.zeros(1, 10), params, backend) == list(range(8))


def test_min_p_at_its_edge(backend: str) -> None:
    params = SamplingParams(min_p=0.25, logprobs_modes=())
    assert possible_ids(torch.tensor([[0.0, log(0.25)]]), params, backend) == [0, 1]


# ---- logprobs of the emitted tokens ----


@given(shape=SHAPE)
def test_a_redrawn_token_has_the_value_of_the_target(backend: str, shape: int) -> None:
    """Not that of the residual; certain here, since p and q overlap nowhere."""
    generator = np.random.default_rng(shape)
    vocab = int(generator.integers(2, 30))
    split = int(generator.integers(1, vocab))
    p, q = generator.dirichlet(np.ones(vocab), 2), generator.dirichlet(np.ones(vocab))
    p[:, split:], q[:split] = 0, 0
    p /= p.sum(axis=1, keepdims=True)
    draft = int(generator.integers(split, vocab))
    result = answers([Ask(target=logits(*p), ids=[draft], draft=logits(q), seed=shape)], backend)
    (token,) = tokens_of(result)[0]
    assert token < split
    np.testing.assert_allclose(result.logprobs[LogprobsMode.RAW_LOGPROBS].values, [log(p[0, token])], atol=1e-4)
