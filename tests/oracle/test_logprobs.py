from __future__ import annotations

import math

import numpy as np
import pytest

from tests.oracle.builders import logs, rows, run

INF = float("inf")


def test_raw_and_processed_values() -> None:
    """Row ln[.1 .2 .3 .4] at T = .5 with top_k 2: processed p is [0 0 9 16] / 25."""
    modes = ["raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"]
    row = logs([0.1, 0.2, 0.3, 0.4])
    outcome = run(row, temperature=0.5, top_k=2, logprobs_modes=modes, logprob_token_ids=[0, 2, 3])
    chosen = {mode: [value for _, value in r.chosen[0]] for mode, r in outcome.logprobs.items()}
    assert chosen["raw_logprobs"] == pytest.approx([math.log(x) for x in (0.1, 0.3, 0.4)], abs=1e-6)
    assert chosen["raw_logits"] == pytest.approx([math.log(x) for x in (0.1, 0.3, 0.4)], abs=1e-6)
    assert chosen["processed_logprobs"] == pytest.approx([-INF, math.log(9 / 25), math.log(16 / 25)], abs=1e-6)
    assert chosen["processed_logits"] == pytest.approx([-INF, 2 * math.log(0.3), 2 * math.log(0.4)], abs=1e-6)


def test_raw_logprobs_know_no_temperature_and_no_penalty() -> None:
    outcome = run(logs([0.25, 0.75]), temperature=0.0, logit_bias={0: 9.0})
    assert outcome.token_ids == [0]
    assert outcome.logprobs["raw_logprobs"].tokens == pytest.approx([math.log(0.25)], abs=1e-6)
    assert outcome.logprobs["raw_logprobs"].ranks == [2]


def test_at_temperature_zero_processed_means_masked_and_penalised() -> None:
    outcome = run(
        logs([0.2, 0.3, 0.5]), temperature=0.0, allowed_token_ids=[0, 1], top_k=1,
        logprobs_modes=["processed_logprobs"], top_logprobs=3,
    )  # fmt: skip
    top = outcome.logprobs["processed_logprobs"].top[0]
    assert [i for i, _ in top] == [1, 0]
    assert [v for _, v in top] == pytest.approx([math.log(0.6), math.log(0.4)], abs=1e-6)


def test_rank_counts_every_equal() -> None:
    outcome = run(rows([1.0, 3.0, 3.0, 0.0, 3.0]), temperature=0.0)
    assert outcome.logprobs["raw_logprobs"].ranks == [3]


def test_top_entries_go_by_id_among_equals_and_leave_out_minus_infinity() -> None:
    row = rows([1.0, -INF, 3.0, 1.0, 3.0])
    for n, ids in ((0, []), (1, [2]), (3, [2, 4, 0]), (256, [2, 4, 0, 3])):
        outcome = run(row, temperature=0.0, top_logprobs=n)
        assert [i for i, _ in outcome.logprobs["raw_logprobs"].top[0]] == ids


def test_a_redrawn_token_s_value_is_the_target_s() -> None:
    """The residual is all at id 1; the value is still ln .4."""
    outcome = run(logs([0.6, 0.4], [0.5, 0.5]), [0], logs([1.0, 0.0]), seed=8)
    redrawn = [run(logs([0.6, 0.4], [0.5, 0.5]), [0], logs([1.0, 0.0]), seed=s) for s in range(30)]
    redrawn = [o for o in redrawn if o.num_accepted == 0]
    assert redrawn
    assert outcome.status == "OK"
    for o in redrawn:
        assert o.token_ids == [1]
        assert o.logprobs["raw_logprobs"].tokens == pytest.approx([math.log(0.4)], abs=1e-6)


def test_cumulative_is_a_sum_over_what_is_emitted() -> None:
    target = logs([0.1, 0.9], [0.2, 0.8], [0.3, 0.7])
    modes = ["raw_logprobs", "raw_logits"]
    whole = run(target, [1, 1], temperature=0.0, logprobs_modes=modes)
    assert whole.logprobs["raw_logprobs"].cumulative == pytest.approx(math.log(0.9 * 0.8 * 0.7), abs=1e-6)
    assert whole.logprobs["raw_logits"].cumulative is None
    cut = run(target, [1, 1], temperature=0.0, max_tokens=2)
    assert cut.logprobs["raw_logprobs"].cumulative == pytest.approx(math.log(0.9 * 0.8), abs=1e-6)


def test_ranks_and_modes_can_be_left_out() -> None:
    assert run(rows([0.0, 1.0]), ranks=False).logprobs["raw_logprobs"].ranks == []
    assert run(rows([0.0, 1.0]), logprobs_modes=[]).logprobs == {}


def test_order_in_processed_modes_is_before_the_division() -> None:
    """Two neighbours in fp32 stay in order at a temperature that makes their quotients equal in fp32."""
    low = np.float32(1.0)
    row = rows([float(low), float(np.nextafter(low, np.float32(2.0)))])
    outcome = run(row, temperature=3.0, logprobs_modes=["processed_logits"], top_logprobs=1, seed=1)
    assert outcome.logprobs["processed_logits"].top[0][0][0] == 1
