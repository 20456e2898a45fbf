"""What a request gets depends on nothing but the request: bit for bit the same in any batch, memory and company."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sampler_kernels import DraftBlock, IdMap, LogprobsMode, SamplingParams, Step, verify
from tests.backends import BACKENDS
from tests.kernels.asking import Ask, Share, answers, shares, step_of

pytestmark = pytest.mark.parametrize("backend", BACKENDS)

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SHAPE = st.integers(0, 2**32 - 1)
WISHES = (
    SamplingParams(temperature=0, top_logprobs=3),
    SamplingParams(temperature=0.7, top_logprobs=20, logprob_token_ids=[0, 1]),
    SamplingParams(draft_temperature=0.5, ranks=False),
    SamplingParams(draft_temperature=0),
    SamplingParams(logprobs_modes=()),
    SamplingParams(temperature=1.5, logprobs_modes=[LogprobsMode.RAW_LOGPROBS], top_logprobs=1),
)


def random_asks(shape: int, *, dtype: torch.dtype, draft_dtype: torch.dtype) -> list[Ask]:
    """Up to twelve requests that differ in every way a step allows; V from one column to three tiles."""
    generator = np.random.default_rng(shape)
    vocab = int(generator.choice([1, 2, 40, 300, 4096, 9000], p=[0.05, 0.15, 0.3, 0.3, 0.1, 0.1]))
    count = int(generator.integers(2, 13)) if vocab < 4096 else 3
    return [_random_ask(generator, vocab, dtype, draft_dtype) for _ in range(count)]


def _random_ask(generator: np.random.Generator, vocab: int, dtype: torch.dtype, draft_dtype: torch.dtype) -> Ask:
    k = int(generator.integers(0, 6))
    id_map, draft, ids = None, None, generator.integers(vocab, size=k)
    kind = int(generator.integers(4))
    if kind:
        width = (vocab, int(generator.integers(1, vocab + 1)), vocab + 3)[kind - 1]
        columns = generator.integers(width, size=k)
        ids = columns
        if kind == 2:
            id_map = IdMap(torch.from_numpy(generator.permutation(vocab)[:width]), vocab)
            ids = id_map.ids.numpy()[columns]
        draft = torch.from_numpy(generator.normal(size=(k, width))).to(draft_dtype)
    if k and generator.random() < 0.2:
        ids = np.where(np.arange(k) >= generator.integers(k), -1, ids)
    target = torch.from_numpy(generator.normal(size=(k + 1, vocab)) * 2).to(dtype)
    target[torch.from_numpy(generator.random(target.shape) < 0.1)] = -torch.inf
    if generator.random() < 0.1:
        target[int(generator.integers(k + 1)), 0] = torch.nan
    listed = [x for x in (0, 1) if x < vocab]
    params = WISHES[int(generator.integers(len(WISHES)))]
    return Ask(
        target=target,
        ids=ids.tolist(),
        draft=draft,
        id_map=id_map,
        params=replace(params, logprob_token_ids=listed) if params.logprob_token_ids else params,
        seed=int(generator.integers(2**64, dtype=np.uint64)),
        position=int(generator.integers(2**62)) >> int(generator.choice([0, 30, 50])),
    )


def alone(asks: list[Ask], backend: str) -> list[Share]:
    return [shares(answers([ask], backend))[0] for ask in asks]


@settings(max_examples=40)
@given(shape=SHAPE, dtype=st.sampled_from(DTYPES), draft_dtype=st.sampled_from(DTYPES))
def test_batch_row_and_neighbours(backend: str, shape: int, dtype: torch.dtype, draft_dtype: torch.dtype) -> None:
    """Alone, in the whole batch, in part of it, in any order, twice in one batch."""
    asks = random_asks(shape, dtype=dtype, draft_dtype=draft_dtype)
    expected = alone(asks, backend)
    generator = np.random.default_rng(shape)
    for chosen in (
        np.arange(len(asks)),
        generator.permutation(len(asks)),
        generator.integers(len(asks), size=2 * len(asks)),
    ):
        assert shares(answers([asks[r] for r in chosen], backend)) == [expected[r] for r in chosen]


@settings(max_examples=25)
@given(shape=SHAPE, dtype=st.sampled_from(DTYPES), draft_dtype=st.sampled_from(DTYPES))
def test_row_strides(backend: str, shape: int, dtype: torch.dtype, draft_dtype: torch.dtype) -> None:
    """Rows cut out of wider memory, off any alignment, beside columns that would win or spoil everything if read."""
    asks = random_asks(shape, dtype=dtype, draft_dtype=draft_dtype)
    generator = np.random.default_rng(shape)
    step = step_of(asks)
    blocks = [DraftBlock(_cut_out(block.logits, generator), block.id_map) for block in step.draft_blocks]
    strided = replace(step, target_logits=_cut_out(step.target_logits, generator), draft_blocks=blocks)
    assert shares(verify(strided, backend=backend)) == shares(verify(step, backend=backend))


def _cut_out(rows: Tensor, generator: np.random.Generator) -> Tensor:
    before, after = int(generator.integers(1, 9)), int(generator.integers(0, 9))
    memory = torch.full((len(rows), before + rows.shape[1] + after), float(generator.choice([np.nan, np.inf, 1e4])))
    cut = memory.to(rows.dtype)[:, before : before + rows.shape[1]]
    return cut.copy_(rows)


@settings(max_examples=20)
@given(shape=SHAPE)
def test_one_value_in_any_dtype(backend: str, shape: int) -> None:
    """Logits that bf16 and fp16 can hold mean the same in all three dtypes, target and draft apart.

    The CPU backend widens them first, so there the bits are the same. A GPU spreads a row of another dtype over its
    threads in other pieces, and float32 sums round otherwise: same tokens, numbers within 1e-5.
    """
    asks = [_coarse(ask) for ask in random_asks(shape, dtype=torch.float32, draft_dtype=torch.float32)]
    step = step_of(asks)
    expected = verify(step, backend=backend)
    for dtype, draft_dtype in ((torch.bfloat16, torch.float16), (torch.float16, torch.float32)):
        blocks = [DraftBlock(block.logits.to(draft_dtype), block.id_map) for block in step.draft_blocks]
        other = replace(step, target_logits=step.target_logits.to(dtype), draft_blocks=blocks)
        answer = verify(other, backend=backend)
        if backend == "cpu":
            assert shares(answer) == shares(expected)
        for name in ("token_ids", "cu_tokens", "num_accepted", "status", "bad_row"):
            np.testing.assert_array_equal(getattr(answer, name), getattr(expected, name), err_msg=name)
        for mode, numbers in expected.logprobs.items():
            np.testing.assert_array_equal(answer.logprobs[mode].ranks, numbers.ranks)
            np.testing.assert_allclose(answer.logprobs[mode].values, numbers.values, rtol=0, atol=1e-5)


def _coarse(ask: Ask) -> Ask:
    """Logits in steps of 1/8 below 16: seven bits, which every dtype has."""
    draft = None if ask.draft is None else (ask.draft * 8).round() / 8
    return replace(ask, target=(ask.target * 8).round() / 8, draft=draft)


@settings(max_examples=20)
@given(shape=SHAPE)
def test_shared_blocks_and_parameters(backend: str, shape: int) -> None:
    """Draft rows in one block or in one for each request, ids in int32 or int64: the step says the same."""
    asks = random_asks(shape, dtype=torch.float32, draft_dtype=torch.bfloat16)
    plain = [replace(ask, draft=ask.draft if ask.id_map is None else None, id_map=None) for ask in asks]
    wide = max((ask.draft.shape[1] for ask in plain if ask.draft is not None), default=0)
    same = [ask for ask in plain if ask.draft is None or ask.draft.shape[1] == wide]
    step = step_of(same)
    drafts = [block.logits for block in step.draft_blocks]
    joined = replace(
        step,
        draft_blocks=[DraftBlock(torch.cat(drafts))] if drafts else [],
        draft_block_index=[-1 if ask.draft is None else 0 for ask in same],
        draft_token_ids=step.draft_token_ids.int(),
        params=[WISHES[2], WISHES[0]],
        params_index=[1] * len(same),
    )
    apart = replace(step, params=[WISHES[0]], params_index=[0] * len(same))
    assert shares(verify(joined, backend=backend)) == shares(verify(apart, backend=backend))


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Memory that torch hands out uninitialised holds NaN and the largest integers, so that reading it shows."""
    debug = torch.get_deterministic_debug_mode()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.set_deterministic_debug_mode("warn")
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
        torch.set_deterministic_debug_mode(debug)


def test_the_poison_works(backend: str) -> None:
    device = "cuda" if backend == "triton" else "cpu"
    with poisoned_memory():
        assert torch.empty(8, device=device).isnan().all()
        assert (torch.empty(8, dtype=torch.int32, device=device) == 2**31 - 1).all()


@pytest.mark.filterwarnings("ignore:.*does not have a deterministic implementation")
@settings(max_examples=30)
@given(shape=SHAPE, dtype=st.sampled_from(DTYPES))
def test_garbage_in_fresh_buffers(backend: str, shape: int, dtype: torch.dtype) -> None:
    asks = random_asks(shape, dtype=dtype, draft_dtype=dtype)
    expected = shares(answers(asks, backend))
    with poisoned_memory():
        assert shares(answers(asks, backend)) == expected


@settings(max_examples=10)
@given(shape=SHAPE)
def test_threads(backend: str, shape: int) -> None:
    asks = random_asks(shape, dtype=torch.float32, draft_dtype=torch.float32)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(shares(answers(asks, backend)))
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1] == found[2]


def test_a_retry(backend: str) -> None:
    step: Step = step_of(random_asks(3, dtype=torch.bfloat16, draft_dtype=torch.float32))
    assert shares(verify(step, backend=backend)) == shares(verify(step, backend=backend))
