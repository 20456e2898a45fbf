"""A checked step as a batch: every column by hand for a batch in which all requests differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sampler_kernels import DraftBlock, IdMap, LogprobsMode, Method, SamplingParams, Step
from sampler_kernels.batch import INVALID_TOKEN, MethodCode
from sampler_kernels.checks import checked
from sampler_kernels.planning.draft_rows import mark_invalid
from sampler_kernels.planning.plan import Plan, plan
from sampler_kernels.planning.wishes import resolve

CPU = torch.device("cpu")
V = 6
MAP = IdMap(torch.tensor([5, 0, 3]), V)
SETS = [
    SamplingParams(temperature=0.5, top_logprobs=4, logprob_token_ids=[2]),
    SamplingParams(temperature=0, draft_temperature=0.7, logprobs_modes=[], top_logprobs=9, logprob_token_ids=[1]),
    SamplingParams(draft_temperature=0.25, ranks=False, logprob_token_ids=[5, 0]),
    SamplingParams(draft_temperature=0),
]


def mixed_step() -> Step:
    """Draft lengths 2, 0, 1, 2, 1, 1; requests 0 and 4 share block 1, which has a map; 3 has no draft logits."""
    mapped = torch.arange(9.0).reshape(3, 3)
    wide = torch.arange(16.0).reshape(2, 8)
    return Step(
        target_logits=torch.arange(13.0 * V).reshape(13, V),
        draft_token_ids=torch.tensor([5, 0, 1, 2, -1, 3, 7]),
        draft_lengths=[2, 0, 1, 2, 1, 1],
        draft_blocks=[DraftBlock(wide), DraftBlock(mapped, MAP)],
        draft_block_index=[1, -1, 0, -1, 1, 0],
        params=SETS,
        params_index=[0, 0, 1, 2, 2, 3],
        seeds=[0, None, 2**64 - 1, 5, None, 6],
        positions=[0, 1, 2**63, 3, 4, 5],
    )


def planned(step: Step, device: torch.device = CPU) -> Plan:
    return plan(step, checked(step), device)


def test_columns_of_a_mixed_batch() -> None:
    batch = planned(mixed_step()).batch
    expected: dict[str, list[Any]] = {
        "draft_lengths": [2, 0, 1, 2, 1, 1],
        "cu_num_logits": [0, 3, 4, 6, 9, 11, 13],
        "cu_drafts": [0, 2, 2, 3, 5, 6, 7],
        "draft_token_ids": [5, 0, 1, 2, -1, 3, 7],
        # Read: the rows of requests 0 and 4. Request 2 is greedy, 3 has no draft logits, 5 is a point mass.
        "draft_row": [0, 1, -1, -1, -1, 2, -1],
        "draft_map": [0, 0, -1, -1, -1, 0, -1],
        "method": [MethodCode.STANDARD] * 2 + [MethodCode.GREEDY] + [MethodCode.STANDARD] * 3,
        "temperature": [0.5, 0.5, 0, 1, 1, 1],
        "draft_temperature": [0.5, 0.5, 0.7, 0.25, 0.25, 0],
        "position": [0, 1, -(2**63), 3, 4, 5],
    }
    for name, values in expected.items():
        assert getattr(batch, name).tolist() == values, name
    assert batch.vocab_size == V
    assert [inverse.tolist() for inverse in batch.inverse_maps] == [[1, -1, -1, 2, -1, 0]]


def test_rows_are_the_requests_own() -> None:
    batch = planned(mixed_step()).batch
    assert [int(batch.target.row(i)[0]) for i in range(13)] == [V * i for i in range(13)]
    # Block 1 holds two rows of request 0 and then one of request 4.
    assert [batch.draft.row(i).tolist() for i in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_columns_by_row() -> None:
    result = planned(mixed_step())
    assert result.target_temperature.tolist() == [0.5] * 4 + [0] * 2 + [1] * 7
    assert result.draft_temperature.tolist() == [0.5, 0.5, 0.25]
    assert result.chosen_ids is not None
    assert result.chosen_ids.tolist() == [[2, -1]] * 4 + [[-1, -1]] * 2 + [[5, 0]] * 5 + [[-1, -1]] * 2


def test_wishes_without_a_mode_are_none() -> None:
    wishes = planned(mixed_step()).wishes
    assert wishes.top.tolist() == [4, 4, 0, 0, 0, 0]
    assert wishes.modes[LogprobsMode.RAW_LOGPROBS].tolist() == [True, True, False, True, True, True]
    assert wishes.ranks.tolist() == [True, True, False, False, False, True]


def test_seeds_as_given_or_fresh_and_small() -> None:
    first, second = planned(mixed_step()), planned(mixed_step())
    for one in (first, second):
        assert one.seeds[[0, 2, 3, 5]].tolist() == [0, 2**64 - 1, 5, 6]
        assert (one.seeds[[1, 4]] < 2**53).all()
        assert (one.batch.seed.numpy().view(np.uint64) == one.seeds).all()
    # Equal fresh seeds have a chance of 2^-53.
    assert first.seeds[1] != first.seeds[4]
    assert first.seeds[1] != second.seeds[1]


def test_given_seeds_are_left_alone() -> None:
    seeds = np.array([1, 2, 3, 4, 5, 6], np.uint64)
    step = mixed_step()
    step = Step(**(vars(step) | {"seeds": seeds}))
    assert planned(step).seeds.tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("method", Method)
def test_temperature_zero_is_greedy_for_lossless_methods(method: Method) -> None:
    resolved = resolve(SamplingParams(method=method, temperature=0))
    assert (resolved.method is MethodCode.GREEDY) == (not method.lossy)
    assert resolved.lossy == method.lossy
    assert not resolved.reads_draft


def test_top_and_chosen_are_of_whatever_mode() -> None:
    other = resolve(SamplingParams(logprobs_modes=[LogprobsMode.RAW_LOGITS], top_logprobs=3, logprob_token_ids=[1]))
    assert (other.modes, other.top, other.chosen_ids) == (frozenset({LogprobsMode.RAW_LOGITS}), 3, (1,))
    none = resolve(SamplingParams(logprobs_modes=[], top_logprobs=3, logprob_token_ids=[1]))
    assert (none.modes, none.top, none.chosen_ids, none.ranks) == (frozenset[LogprobsMode](), 0, (), False)


INVERSE = torch.tensor([1, -1, -1, 2, -1, 0], dtype=torch.int32)


@pytest.mark.parametrize(
    ("token", "limit", "mapped", "legal"),
    [
        (0, V, False, True),
        (V - 1, V, False, True),
        (V, V, False, False),
        (7, 8, False, True),
        (-1, V, False, True),
        (-1, V, True, True),
        (-2, V, False, False),
        (5, V, True, True),
        (1, V, True, False),
        (V, V, True, False),
        (2**32, V, False, False),
        (2**32 + 3, V, False, False),
        (2**31, V, True, False),
        (-(2**63), V, False, False),
        (2**63 - 1, V, False, False),
        (-(2**32) + 3, V, True, False),
    ],
)
def test_ids_on_a_device_are_marked_there(token: int, limit: int, mapped: bool, legal: bool) -> None:
    ids = torch.tensor([token])
    limits, which = torch.tensor([limit], dtype=torch.int32), torch.tensor([0 if mapped else -1], dtype=torch.int32)
    marked = mark_invalid(ids, limits, which, (INVERSE,))
    assert marked.dtype == torch.int32
    assert marked.tolist() == [token if legal else INVALID_TOKEN]


@pytest.mark.gpu
def test_a_batch_for_a_gpu_waits_for_nothing() -> None:
    step = mixed_step()
    reference = planned(step).batch
    device = torch.device("cuda", 0)
    blocks = [DraftBlock(block.logits.to(device), block.id_map) for block in step.draft_blocks]
    ids = torch.tensor([5, 1, 1, 2, -1, 2**32 + 3, 8], device=device)
    moved = {"target_logits": step.target_logits.to(device), "draft_blocks": blocks, "draft_token_ids": ids}
    step = Step(**(vars(step) | moved))
    planned(step, device)  # the first use of a map reads it back and copies it
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        batch = planned(step, device).batch
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for name in ("draft_row", "draft_map", "method", "temperature", "position", "cu_num_logits"):
        assert torch.equal(getattr(batch, name).cpu(), getattr(reference, name)), name
    invalid = INVALID_TOKEN
    assert batch.draft_token_ids.tolist() == [5, invalid, 1, 2, -1, invalid, invalid]
    for table in (batch.target, batch.draft):
        pointers = table.pointers(device)
        assert pointers.address.tolist() == table.addresses().tolist()
        assert pointers.width.tolist() == table.widths().tolist()
