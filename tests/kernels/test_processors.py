"""Edits and masks: every element of every row of the window against the table of the contract, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sampler_kernels import SamplingParams, Status, verify
from sampler_kernels.elements import load, load_at, load_groups
from sampler_kernels.layout import GROUP
from tests.kernels.processing import F32, Request, make_step, processed_batch, true_row

INF = float("inf")


def rows_of(requests: list[Request]) -> F32:
    """All processed rows of a batch, read whole."""
    batch = processed_batch(requests)
    loaded: F32 = load(batch.target, np.arange(len(batch.target)), 0, batch.vocab_size).numpy()
    return loaded


def truth_of(requests: list[Request]) -> F32:
    return np.stack([true_row(r, j) for r in requests for j in range(len(r.ids) + 1)])


def random_request(rng: np.random.Generator, vocab: int, dtype: torch.dtype = torch.float32) -> Request:
    """Ids from a handful, so that histories, drafts, words and biases meet; some ids of other modalities."""
    few = rng.integers(0, vocab, 5)
    k = int(rng.integers(0, 5))

    def text(most: int) -> list[int]:
        ids = [int(x) for x in rng.choice(few, int(rng.integers(0, most)))]
        return [int(rng.choice([-1, vocab, 2**40])) if rng.random() < 0.1 else x for x in ids]

    def on(probability: float = 0.5) -> bool:
        return bool(rng.random() < probability)

    def allowed() -> list[int]:
        return sorted({int(x) for x in rng.integers(0, vocab, vocab)})

    given: dict[str, Any] = {
        "repetition_penalty": float(rng.choice([1, 1.3, 0.7])),
        "frequency_penalty": float(rng.choice([0, 0.3, -0.2])),
        "presence_penalty": float(rng.choice([0, 0.7])),
    }
    if on():
        given |= {"min_tokens": int(rng.integers(1, 9)), "stop_token_ids": [int(few[0]), int(few[0]), int(few[3])]}
    if on():
        given["logit_bias"] = {int(x): float(rng.normal()) for x in rng.integers(0, vocab, 3)}
    counted = on(0.3)
    if on():
        longest = 2 if counted else 4
        given["bad_words"] = [[int(x) for x in rng.choice(few, int(rng.integers(1, longest)))] for _ in range(4)]
        if counted:
            given["bad_words"] = [[word[-1]] for word in given["bad_words"]]
    if on(0.3):
        given["allowed_token_ids"] = allowed()
    elif on(0.3):
        given["allowed_token_ids_by_row"] = [allowed() for _ in range(k + 1)]
    return Request(
        target=(torch.from_numpy(rng.normal(size=(k + 1, vocab))).float() * 3).to(dtype),
        ids=[-1 if on(0.1) else int(x) for x in rng.choice(few, k)],
        params=SamplingParams(**given),
        prompt=text(8),
        output=text(8),
        counted=counted,
        output_length=int(rng.integers(0, 9)) if on(0.3) else -1,
        bitmask=[None if on(0.3) else allowed() for _ in range(k + 1)] if on(0.3) else None,
    )


@pytest.mark.parametrize("vocab", [1, 2, 7, 33, 128, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_random_batches_bit_for_bit(vocab: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(vocab)
    for _ in range(25):
        requests = [random_request(rng, vocab, dtype) for _ in range(int(rng.integers(1, 5)))]
        np.testing.assert_array_equal(rows_of(requests), truth_of(requests))


def test_every_way_to_read_an_element_reads_the_same() -> None:
    rng = np.random.default_rng(3)
    requests = [random_request(rng, 1000) for _ in range(8)]
    whole, target = rows_of(requests), processed_batch(requests).target
    row = np.arange(len(target))
    columns = rng.integers(-2, 1003, (len(row), 50))
    padded = np.pad(whole, ((0, 0), (2, 200)), constant_values=-INF)
    np.testing.assert_array_equal(load_at(target, row, columns).numpy(), padded[row[:, None], columns + 2])
    np.testing.assert_array_equal(load_at(target, row, columns[:, 0]).numpy(), padded[row, columns[:, 0] + 2])
    group = rng.integers(0, 8, (len(row), 3))
    ids = group[..., None] * GROUP + np.arange(GROUP)
    np.testing.assert_array_equal(load_groups(target, row, group).numpy(), padded[row[:, None, None], ids + 2])
    np.testing.assert_array_equal(load_groups(target, row, group[:, 0]).numpy(), padded[row[:, None], ids[:, 0] + 2])
    for start, stop in ((0, 1000), (128, 640), (960, 1100)):
        np.testing.assert_array_equal(load(target, row, start, stop).numpy(), padded[:, start + 2 : stop + 2])
        one = load(target, row[4:5], start, stop).numpy()
        np.testing.assert_array_equal(one, padded[4:5, start + 2 : stop + 2])


def test_a_row_is_the_same_in_any_batch_and_in_any_order() -> None:
    rng = np.random.default_rng(4)
    requests = [random_request(rng, 40) for _ in range(12)]
    alone = np.concatenate([rows_of([r]) for r in requests])
    np.testing.assert_array_equal(rows_of(requests), alone)
    target = processed_batch(requests).target
    for row in rng.permutation(len(target)):  # one by one, and not from the first on
        np.testing.assert_array_equal(load(target, np.array([row]), 0, 40).numpy()[0], alone[row])


def test_edits_are_one_list_a_request_and_one_value_a_row() -> None:
    """What a kernel is promised: ids ascending and distinct, values in their order, far less than the rows."""
    rng = np.random.default_rng(5)
    requests = [random_request(rng, 300) for _ in range(20)]
    batch = processed_batch(requests)
    assert batch.target.processing is not None
    assert batch.target.processing.edits is not None
    edits = batch.target.processing.edits.of(torch.arange(len(batch.target)))
    cu, first, truth = edits.cu.tolist(), edits.first.tolist(), truth_of(requests)
    for row, request in enumerate(edits.request.tolist()):
        ids = edits.ids[cu[request] : cu[request + 1]]
        assert (ids.diff() > 0).all()
        assert first[row + 1] - first[row] == len(ids)
    assert (edits.keys.diff() > 0).all()
    assert torch.equal(edits.keys % 300, edits.ids)
    assert edits.values.numel() < truth.size / 10
    for row, request in enumerate(edits.request.tolist()):
        if len(requests[request].params.bad_words) == 0 and requests[request].bitmask is None:
            ids = edits.ids[cu[request] : cu[request + 1]]
            np.testing.assert_array_equal(edits.values[first[row] : first[row + 1]], truth[row][ids])


def test_penalties_do_not_count_the_prompt() -> None:
    logits = torch.tensor([[1.0, 1.0, 1.0]])
    params = SamplingParams(frequency_penalty=1, presence_penalty=0.5)
    both = Request(logits, (), params, prompt=[0, 0, 1], output=[1, 1])
    assert rows_of([both]).tolist() == [[1.0, -1.5, 1.0]]


def test_penalties_grow_with_the_window() -> None:
    logits = torch.ones(4, 3)
    params = SamplingParams(frequency_penalty=0.25)
    rows = rows_of([Request(logits, [2, 0, 2], params, output=[2])])
    assert rows.tolist() == [[1, 1, 0.75], [1, 1, 0.5], [0.75, 1, 0.5], [0.75, 1, 0.25]]


def test_counts_do_what_the_ids_do() -> None:
    rng = np.random.default_rng(6)
    output = [int(x) for x in rng.integers(-1, 9, 30)]
    params = SamplingParams(repetition_penalty=1.2, frequency_penalty=0.1, stop_token_ids=[1], min_tokens=31)
    logits = torch.from_numpy(rng.normal(size=(3, 8))).float()
    given = [Request(logits, [3, 4], params, output=output, counted=counted) for counted in (False, True)]
    rows = rows_of(given)
    np.testing.assert_array_equal(rows[:3], rows[3:])
    assert np.isneginf(rows[:, 1]).tolist() == [True, False, False] * 2


@pytest.mark.parametrize("value", [np.nan, INF])
@pytest.mark.parametrize("how", ["mask", "bitmask", "bad word", "min tokens", "bias", "penalty"])
def test_a_bad_element_is_seen_whatever_becomes_of_it(value: float, how: str) -> None:
    logits = torch.zeros(1, 300)
    logits[0, 7] = value
    rest = [i for i in range(300) if i != 7]
    given: dict[str, dict[str, Any]] = {
        "mask": {"allowed_token_ids": rest},
        "bad word": {"bad_words": [[7]]},
        "min tokens": {"stop_token_ids": [7], "min_tokens": 1},
        "bias": {"logit_bias": {7: -5.0}},
        "penalty": {"repetition_penalty": 2.0, "frequency_penalty": 1.0},
    }
    params = SamplingParams(**given.get(how, {}))
    request = Request(logits, (), params, output=[7] if how == "penalty" else [])
    request.bitmask = [rest] if how == "bitmask" else None
    batch = processed_batch([request])
    element = float(load_at(batch.target, np.array([0]), np.array([7])))
    assert not element < INF
    if how != "min tokens":
        result = verify(make_step([request]), backend="cpu")
        assert (result.status.tolist(), result.bad_row.tolist()) == ([Status.INVALID_LOGITS], [0])


@pytest.mark.parametrize(
    "given",
    [
        {"allowed_token_ids": [1], "bad_words": [[1]]},
        {"bad_words": [[0], [1], [2]]},
        {"logit_bias": {1: 3e38}, "allowed_token_ids": [1]},
    ],
)
def test_nothing_left_or_overflow_is_a_bad_row(given: dict[str, Any]) -> None:
    logits = torch.tensor([[0.0, 3e38, 0.0]])
    result = verify(make_step([Request(logits, (), SamplingParams(**given))]), backend="cpu")
    assert result.status.tolist() == [Status.INVALID_LOGITS]


def test_an_overflow_that_is_masked_is_none() -> None:
    logits = torch.tensor([[0.0, 3e38, 0.0]])
    for given in ({"allowed_token_ids": [0, 2]}, {"bad_words": [[1]]}):
        params = SamplingParams(logit_bias={1: 3e38}, **given)
        assert rows_of([Request(logits, (), params)]).tolist() == [[0.0, -INF, 0.0]]


def test_both_masks_must_allow() -> None:
    logits = torch.zeros(2, 70)
    params = SamplingParams(allowed_token_ids_by_row=[[1, 2, 69], [5]])
    rows = rows_of([Request(logits, [2], params, bitmask=[[2, 3, 69], None]), Request(logits, [2])])
    assert [np.flatnonzero(row == 0).tolist() for row in rows[:2]] == [[2, 69], [5]]
    assert (rows[2:] == 0).all()


def test_a_step_that_processes_nothing_has_nothing_to_process_with() -> None:
    batch = processed_batch([Request(torch.zeros(1, 8), (), SamplingParams(temperature=0.5), prompt=[1], output=[2])])
    assert batch.target.processing is None
    assert batch.edit_sources is None
