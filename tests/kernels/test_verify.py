"""The step from end to end: known answers, and what one request may not do to another."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels import (
    DraftBlock,
    IdMap,
    LogprobsMode,
    ModeLogprobs,
    Reason,
    SamplingParams,
    Status,
    Step,
    StepRefused,
    StepResult,
    verify,
)

RAW = LogprobsMode.RAW_LOGPROBS


@pytest.fixture(params=["cpu", "triton"])
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend that must pass every test here."""
    if request.param == "triton":
        pytest.importorskip("triton")
    return str(request.param)


def logits(*rows: list[float]) -> Tensor:
    return torch.tensor(rows).log()


def tokens(result: StepResult) -> list[list[float]]:
    cu = result.cu_tokens
    return [result.token_ids[cu[r] : cu[r + 1]].tolist() for r in range(len(cu) - 1)]


@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1])
def test_the_known_case_emits_its_answer_for_any_seed(backend: str, seed: int) -> None:
    step = Step(
        target_logits=logits([0, 0.1, 0.6, 0.3], [1, 0, 0, 0], [0.7, 0.1, 0.1, 0.1]),
        draft_token_ids=torch.tensor([2, 1]),
        draft_lengths=[2],
        draft_blocks=[DraftBlock(logits([0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.1]))],
        params=[SamplingParams(top_logprobs=4, logprob_token_ids=[1])],
        seeds=[seed],
    )
    result = verify(step, backend=backend)
    assert tokens(result) == [[2, 0]]
    assert (result.num_accepted.tolist(), result.seeds.tolist(), result.backend) == ([1], [seed], backend)
    raw = result.logprobs[RAW]
    np.testing.assert_allclose(raw.values, [log(0.6), 0], atol=1e-6)
    assert raw.ranks.tolist() == [1, 1]
    np.testing.assert_allclose(raw.cumulative, [log(0.6)], atol=1e-6)
    assert raw.top_ids.tolist() == [2, 3, 1, 0]
    assert raw.cu_top.tolist() == [0, 3, 4]
    np.testing.assert_allclose(raw.chosen_values, [log(0.1), -np.inf], atol=1e-6)


V, V_D = 300, 40
SETS = [
    SamplingParams(temperature=0, top_logprobs=2),
    SamplingParams(temperature=0.7, top_logprobs=20, logprob_token_ids=[3, 299]),
    SamplingParams(draft_temperature=0.5, ranks=False),
    SamplingParams(draft_temperature=0, logprobs_modes=[]),
]
LENGTHS = [3, 0, 1, 4, 2]
PARAMS_INDEX, BLOCK_INDEX = [0, 1, 1, 2, 3], [0, -1, 1, 0, -1]
ID_MAP = IdMap(torch.arange(V_D) * 7, V)


def mixed_step(which: list[int]) -> Step:
    """Some of five requests that differ in every way, with the same contents whoever is asked for with whom."""
    generator = torch.Generator().manual_seed(5)
    target = [torch.randn(k + 1, V, generator=generator) * 2 for k in LENGTHS]
    wide = [torch.randn(k, V, generator=generator) for k in LENGTHS]
    narrow = [torch.randn(k, V_D, generator=generator) for k in LENGTHS]
    ids = [torch.randint(V_D, (k,), generator=generator) * 7 for k in LENGTHS]
    ids[4][1] = -1
    return Step(
        target_logits=torch.cat([target[r] for r in which]),
        draft_token_ids=torch.cat([ids[r] for r in which]),
        draft_lengths=[LENGTHS[r] for r in which],
        draft_blocks=[
            DraftBlock(torch.cat([torch.empty(0, V), *(wide[r] for r in which if BLOCK_INDEX[r] == 0)])),
            DraftBlock(torch.cat([torch.empty(0, V_D), *(narrow[r] for r in which if BLOCK_INDEX[r] == 1)]), ID_MAP),
        ],
        draft_block_index=[BLOCK_INDEX[r] for r in which],
        params=SETS,
        params_index=[PARAMS_INDEX[r] for r in which],
        seeds=[2**40 + r for r in which],
        positions=[2**33 * r for r in which],
    )


def shares(result: StepResult) -> list[list[list[float]]]:
    """Everything that each request gets, so that two requests are equal if their shares are, bit for bit."""
    return [
        [
            [result.status[r], result.num_accepted[r], result.seeds[r], result.bad_row[r]],
            tokens(result)[r],
            *raw_share(result.logprobs.get(RAW), r, result.cu_tokens),
        ]
        for r in range(len(result.status))
    ]


def raw_share(raw: ModeLogprobs | None, r: int, cu_tokens: NDArray[np.int32]) -> list[list[float]]:
    if raw is None or np.isnan(raw.cumulative[r]):
        return []
    mine = slice(cu_tokens[r], cu_tokens[r + 1])
    top, chosen = (slice(cu[mine.start], cu[mine.stop]) for cu in (raw.cu_top, raw.cu_chosen))
    columns = (raw.values[mine], raw.ranks[mine], raw.top_ids[top], raw.top_values[top], raw.chosen_values[chosen])
    return [[float(raw.cumulative[r])], *(column.tolist() for column in columns)]


@pytest.mark.parametrize("which", [[4, 3, 2, 1, 0], [2, 2, 0, 3], [1, 4, 1]])
def test_a_request_gets_the_same_bits_alone_and_in_any_batch(backend: str, which: list[int]) -> None:
    alone = [shares(verify(mixed_step([r]), backend=backend))[0] for r in range(5)]
    assert shares(verify(mixed_step(which), backend=backend)) == [alone[r] for r in which]


def test_the_parts_of_a_mixed_batch_do_their_work(backend: str) -> None:
    result = verify(mixed_step([0, 1, 2, 3, 4]), backend=backend)
    assert result.status.tolist() == [Status.OK] * 5
    assert np.diff(result.cu_tokens).tolist() == (result.num_accepted + 1).tolist()
    # Nothing after the placeholder of request 4 is accepted.
    assert result.num_accepted[4] <= 1
    raw = result.logprobs[RAW]
    assert np.isnan(raw.cumulative).tolist() == [False, False, False, False, True]
    assert set(np.diff(raw.cu_top)[: result.cu_tokens[1]]) == {2}
    timings = result.timings
    assert min(timings.upload_us, timings.device_us, timings.download_us) > 0


def test_one_bad_row_costs_its_own_request_only(backend: str) -> None:
    clean, broken = mixed_step([0, 1, 2, 3, 4]), mixed_step([0, 1, 2, 3, 4])
    row_of_request_2 = 5
    broken.target_logits[row_of_request_2, 17] = np.nan
    before, after = verify(clean, backend=backend), verify(broken, backend=backend)
    assert after.status.tolist() == [1, 1, Status.INVALID_LOGITS, 1, 1]
    assert (after.bad_row[2], after.num_accepted[2], tokens(after)[2]) == (0, 0, [])
    kept = [0, 1, 3, 4]
    assert [shares(after)[r] for r in kept] == [shares(before)[r] for r in kept]


def test_nothing_is_written_to_the_inputs(backend: str) -> None:
    step = mixed_step([0, 1, 2, 3, 4])
    tensors = [step.target_logits, step.draft_token_ids, *(block.logits for block in step.draft_blocks)]
    copies = [tensor.clone() for tensor in tensors]
    verify(step, backend=backend)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(tensors, copies, strict=True))


def test_a_given_seed_replays_the_step(backend: str) -> None:
    step = mixed_step([1, 3])
    first = verify(Step(**(vars(step) | {"seeds": None})), backend=backend)
    again = verify(Step(**(vars(step) | {"seeds": first.seeds})), backend=backend)
    assert shares(first) == shares(again)


def test_no_logprobs_where_nobody_wants_any(backend: str) -> None:
    assert verify(mixed_step([4]), backend=backend).logprobs == {}


def test_logits_that_are_trained_on_are_read_all_the_same(backend: str) -> None:
    step = Step(
        target_logits=torch.zeros(1, 4, requires_grad=True),
        draft_token_ids=torch.empty(0, dtype=torch.int64),
        draft_lengths=[0],
        params=[SamplingParams(temperature=0, top_logprobs=256)],
    )
    result = verify(step, backend=backend)
    assert tokens(result) == [[0]]
    assert result.logprobs[RAW].top_ids.tolist() == [0, 1, 2, 3]


def test_a_refused_step_is_refused_before_anything_runs(backend: str) -> None:
    step = mixed_step([0, 1])
    with pytest.raises(StepRefused) as caught:
        verify(Step(**(vars(step) | {"draft_lengths": [3, 1]})), backend=backend)
    assert caught.value.reason is Reason.SHAPE_MISMATCH
