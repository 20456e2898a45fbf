"""A set is named only if the server is sure to have it, whatever is refused, evicted or still on its way."""

from __future__ import annotations

import random
from collections import deque

import pytest

from sampler_client import SamplingParams, Step
from sampler_client.codec.request import ParamsColumns
from sampler_client.streams.kept_params import Kept, KeptParams
from tests.client.steps import step

A, B, C, D = (SamplingParams(top_k=k) for k in (1, 2, 3, 4))


def using(*sets: SamplingParams) -> Step:
    return step([0] * len(sets), params=sets)


def said(columns: ParamsColumns) -> tuple[list[SamplingParams], list[int], list[int], list[int]]:
    return list(columns.sent), list(columns.index or ()), list(columns.kept), list(columns.keep_as)


def test_sent_until_answered_then_named() -> None:
    kept = KeptParams(4)
    first, keeping = kept.plan(using(A, B))
    again, _ = kept.plan(using(A, B))
    assert said(first) == said(again) == ([A, B], [0, 1], [], [1, 2])
    kept.confirm(keeping)
    named, nothing = kept.plan(using(A, B))
    assert said(named) == ([], [0, 1], [1, 2], [])
    assert nothing == []


def test_new_sets_come_before_named_ones() -> None:
    kept = KeptParams(4)
    kept.confirm(kept.plan(using(A, B))[1])
    columns, _ = kept.plan(using(B, C, A))
    assert said(columns) == ([C], [1, 0, 2], [2, 1], [3])


def test_least_recently_used_makes_room() -> None:
    kept = KeptParams(2)
    kept.confirm(kept.plan(using(A, B))[1])
    kept.plan(using(A))
    columns, _ = kept.plan(using(C))
    assert columns.keep_as == [2]
    assert said(kept.plan(using(A))[0]) == ([], [0], [1], [])


def test_set_of_the_same_step_does_not_make_room() -> None:
    kept = KeptParams(2)
    columns, _ = kept.plan(using(A, B, C))
    assert said(columns) == ([A, B, C], [0, 1, 2], [], [1, 2, 0])


def test_late_answer_does_not_confirm_a_set_that_was_evicted_and_came_back() -> None:
    kept = KeptParams(1)
    _, keeping = kept.plan(using(A))
    kept.plan(using(B))
    kept.plan(using(A))
    kept.confirm(keeping)  # of the first step; the third may yet be refused, and then id 1 is B
    assert said(kept.plan(using(A))[0]) == ([A], [0], [], [1])


def test_one_set_under_two_places() -> None:
    kept = KeptParams(4)
    columns, _ = kept.plan(step([0, 0], params=[A, A]))
    assert said(columns) == ([A], [0, 0], [], [1])


def test_first_set_for_all_where_no_index_is_given() -> None:
    columns, _ = KeptParams(4).plan(step([0, 0, 0], params=[A, B]))
    assert said(columns) == ([A, B], [0, 0, 0], [], [1, 2])


@pytest.mark.parametrize("index", [[0, 2], [-1, 0]])
def test_wrong_index_is_left_to_the_server(index: list[int]) -> None:
    wrong = Step(target_logits=[[0.0]] * 2, draft_lengths=[0, 0], params=[A, B], params_index=index)
    columns, _ = KeptParams(4).plan(wrong)
    assert (columns.sent, columns.index) == ([A, B], index)


def test_nothing_is_kept_without_capacity() -> None:
    columns, keeping = KeptParams(0).plan(using(A))
    assert said(columns) == ([A], [0], [], [])
    assert keeping == []


def test_everything_is_sent_again_after_forgetting() -> None:
    kept = KeptParams(4)
    kept.confirm(kept.plan(using(A))[1])
    kept.forget()
    assert said(kept.plan(using(A))[0])[0] == [A]


@pytest.mark.parametrize("seed", range(20))
def test_server_always_finds_the_set_that_was_meant(seed: int) -> None:
    """Random pipelining, eviction and refusals against a model of the server's side."""
    choose = random.Random(seed)
    sets = [SamplingParams(top_k=k) for k in range(6)]
    kept = KeptParams(choose.randint(1, 4))
    at_server: dict[int, SamplingParams] = {}
    flying: deque[tuple[Step, ParamsColumns, list[Kept]]] = deque()

    def arrive() -> None:
        what, columns, keeping = flying.popleft()
        table = [*columns.sent, *(at_server[number] for number in columns.kept)]  # a KeyError would be NOT_FOUND
        assert columns.index is not None
        meant = [what.params[place] for place in what.params_index or ()]
        assert [table[place] for place in columns.index] == meant
        if choose.random() < 0.3:  # refused: keeps nothing
            return
        at_server.update(
            (number, params) for number, params in zip(columns.keep_as, columns.sent, strict=True) if number
        )
        kept.confirm(keeping)

    for _ in range(400):
        what = using(*choose.sample(sets, choose.randint(1, 5)))
        flying.append((what, *kept.plan(what)))
        while len(flying) > choose.randint(0, 5):
            arrive()
