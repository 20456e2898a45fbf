"""Each method against cases worked by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from tests.oracle import methods
from tests.oracle.builders import logs, rows, run, stage
from tests.oracle.methods import Decision, Stage, block, draw, draw_residual, greedy, standard, strict
from tests.oracle.request import Json, Params
from tests.oracle.rows import PointMass

A, B = [1 / 3, 2 / 3], [2 / 3, 1 / 3]


class TestGreedy:
    def test_stops_at_the_first_mismatch(self) -> None:
        target = rows([0.0, 2.0, 1.0], [3.0, 0.0, 0.0], [0.0, 0.0, 1.0])
        assert run(target, [1, 0], temperature=0.0).token_ids == [1, 0, 2]
        assert run(target, [1, 2], temperature=0.0).token_ids == [1, 0]
        assert run(target, [0, 0], temperature=0.0).token_ids == [1]

    def test_ties_go_to_the_lowest_id(self) -> None:
        assert run(rows([0.0, 2.0, 2.0], [1.0, 1.0, 1.0]), [2], temperature=0.0).token_ids == [1]

    @pytest.mark.parametrize("method", ["standard", "strict", "block"])
    def test_the_lossless_methods_are_greedy_at_temperature_zero(self, method: str) -> None:
        target, draft = rows([0.0, 2.0], [2.0, 0.0]), rows([9.0, 0.0])
        assert run(target, [1], draft, temperature=0.0, method=method).token_ids == [1, 0]


class TestStandard:
    def test_small_case(self) -> None:
        target = logs([0, 0.1, 0.6, 0.3], [1, 0, 0, 0], [0.7, 0.1, 0.1, 0.1])
        draft = logs([0.1, 0.2, 0.3, 0.4], [0.2, 0.3, 0.4, 0.1])
        for seed in range(50):
            assert run(target, [2, 1], draft, seed=seed).token_ids == [2, 0]

    def test_the_accept_test_is_strict(self) -> None:
        """At u = .5, u q = .25 = p: rejected; a hair less: accepted."""
        p, q = [[0.25, 0.75], [1.0, 0.0]], [[0.5, 0.5]]
        assert standard(stage(p, q, [0], [0.5])).accepted == 0
        assert standard(stage(p, q, [0], [0.5 - 2**-52])).accepted == 1

    def test_no_mass_never_stands_and_no_draft_mass_always_does(self) -> None:
        assert standard(stage([[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0]], [0], [1e-9])).accepted == 0
        assert standard(stage([[0.1, 0.9], [1.0, 0.0]], [[0.0, 1.0]], [0], [1 - 1e-9])).accepted == 1

    def test_a_point_mass_leaves_p_without_the_token(self) -> None:
        """Rejected at u = 0.6 >= p(1) = 0.5; what is left, .2 and .3, is drawn from at u = .39 and .41."""
        p = [[0.2, 0.5, 0.3], [1.0, 0.0, 0.0]]
        assert standard(stage(p, None, [1], [0.6], [0.39])) == Decision(0, 0)
        assert standard(stage(p, None, [1], [0.6], [0.41])) == Decision(0, 2)
        assert standard(stage(p, None, [1], [0.4], [0.5, 0.5])) == Decision(1, 0)

    def test_the_residual_subtracts_all_of_q(self) -> None:
        """max(p - q, 0) = [.1, 0, .2]: a third lies at id 0."""
        p, q = [[0.3, 0.1, 0.6], [1.0, 0.0, 0.0]], [[0.2, 0.4, 0.4]]
        assert standard(stage(p, q, [1], [0.9], [0.33])) == Decision(0, 0)
        assert standard(stage(p, q, [1], [0.9], [0.34])) == Decision(0, 2)

    def test_draft_temperature_defaults_to_the_temperature_and_overrides_it(self) -> None:
        """p(0) = .5 at any temperature. q(0) at T = .5: .9^2/(.9^2+.1^2) = .9878; at T_d = 1: .9."""
        target, draft = logs([0.5, 0.5], [0.5, 0.5]), logs([0.9, 0.1])
        wanted: dict[str, Json] = {"acceptance_probabilities": True, "temperature": 0.5, "seed": 1}
        assert run(target, [0], draft, **wanted).acceptance_probabilities == pytest.approx(
            [0.5 / (0.81 / 0.82)], abs=1e-6
        )
        one = run(target, [0], draft, draft_temperature=1.0, **wanted)
        assert one.acceptance_probabilities == pytest.approx([0.5 / 0.9], abs=1e-6)
        zero = run(target, [0], draft, draft_temperature=0.0, **wanted)
        assert zero.acceptance_probabilities == pytest.approx([0.5], abs=1e-6)

    def test_at_draft_temperature_zero_draft_logits_are_not_read(self) -> None:
        outcome = run(logs([0.5, 0.5], [0.5, 0.5]), [0], rows([np.nan, np.inf]), draft_temperature=0.0, seed=3)
        assert outcome.status == "OK"


class TestVocabularies:
    def test_a_smaller_draft_vocabulary_has_no_mass_beyond_it(self) -> None:
        """With q = [.5 .5] over ids 0 and 1, the residual of p = [.1 .1 .8] is all at id 2."""
        target, draft = logs([0.1, 0.1, 0.8], [1, 0, 0]), logs([0.5, 0.5])
        emitted = {run(target, [0], draft, seed=s).token_ids[0] for s in range(60)}
        assert emitted == {0, 2}

    def test_ids_beyond_the_target_vocabulary_never_stand(self) -> None:
        target = logs([0.5, 0.5], [0.5, 0.5])
        for method in ("standard", "strict", "block", "typical"):
            assert run(target, [2], logs([0.1, 0.1, 0.8]), seed=1, method=method).num_accepted == 0
        assert run(target, [2], logs([0.1, 0.1, 0.8]), temperature=0.0).num_accepted == 0
        draft = logs([0.1, 0.1, 0.8])
        assert run(target, [2], draft, seed=1, method="synthetic", synthetic_rates=[1.0]).num_accepted == 0
        relaxed: dict[str, Json] = {"method": "relaxed", "relaxed_top_n": 9, "relaxed_margin": 99.0}
        assert run(target, [2], draft, seed=1, **relaxed).num_accepted == 0

    def test_mass_beyond_the_target_vocabulary_counts_in_q(self) -> None:
        """q(0) = .2 beside .6 at id 2, so min(1, p / q) of id 0 is .1 / .2."""
        outcome = run(logs([0.1, 0.9], [0.5, 0.5]), [0], logs([0.2, 0.2, 0.6]), acceptance_probabilities=True)
        assert outcome.acceptance_probabilities == pytest.approx([0.5], abs=1e-6)

    def test_an_id_map_scatters_the_columns(self) -> None:
        """Columns are ids 3 and 1: q = [0 .25 0 .75]; residual of p = [.1 .4 .1 .4] is [.1 .15 .1 0]."""
        target = logs([0.1, 0.4, 0.1, 0.4], [0, 0, 0, 1])
        draft = logs([0.75, 0.25])
        wanted: dict[str, Json] = {"id_map": [3, 1], "acceptance_probabilities": True}
        assert run(target, [3], draft, **wanted).acceptance_probabilities == pytest.approx([0.4 / 0.75], abs=1e-6)
        assert run(target, [1], draft, **wanted).acceptance_probabilities == [1.0]
        seen = [run(target, [3], draft, id_map=[3, 1], seed=s) for s in range(100)]
        assert {o.token_ids[0] for o in seen if o.num_accepted == 0} == {0, 1, 2}


class TestStrict:
    def test_stops_at_the_first_draw_that_differs(self) -> None:
        p = [[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]]
        assert strict(stage(p, None, [0, 1], draw=[0.4, 0.3, 0.95])) == Decision(2, 1)
        assert strict(stage(p, None, [0, 1], draw=[0.4, 0.1, 0.95])) == Decision(1, 0)
        assert strict(stage(p, None, [0, 1], draw=[0.6, 0.1, 0.95])) == Decision(0, 1)

    def test_the_same_sequence_whatever_the_drafts(self) -> None:
        """Rows that do not depend on the text: any drafts and any split give the draws at each position."""
        row = logs([0.2, 0.3, 0.5])[0]
        by_token = [run(row[None], seed=5, position=j, method="strict").token_ids[0] for j in range(6)]
        for drafts in itertools.product(range(3), repeat=3):
            outcome = run(np.tile(row, (4, 1)), drafts, seed=5, position=1, method="strict")
            assert outcome.token_ids == by_token[1 : 1 + len(outcome.token_ids)]


class TestBlock:
    def test_the_longest_prefix_that_passes_wins(self) -> None:
        """Drafts 0, 1 over p = A, q = B: c = [1, 1/2, 1], so the first test fails always and the second never."""
        assert block(stage([A, A, A], [B, B], [0, 1], [0.9, 0.9], [0.1, 0.1, 0.1])) == Decision(2, 0)

    def test_h_of_the_middle(self) -> None:
        """c_1 = .6/.8 = .75. S_1 = .75 * .9 - .5 = .175, h_1 = .175 / .425 = .41176. c_2 = .75 * .1/.5 = .15."""
        p, q = [[0.6, 0.4], [0.9, 0.1], [0.5, 0.5]], [[0.8, 0.2], [0.5, 0.5]]
        assert block(stage(p, q, [0, 1], [0.4117, 0.1501])).accepted == 1
        assert block(stage(p, q, [0, 1], [0.4118, 0.1501])).accepted == 0
        assert block(stage(p, q, [0, 1], [0.4118, 0.1499])).accepted == 2

    def test_the_residual_is_scaled_by_c(self) -> None:
        """After one of two: max(.75 * [.5 .1 .4] - [.1 .7 .2], 0) = [.275 0 .1], of .375: id 0 up to .7333."""
        p = [[0.6, 0.4, 0.0], [0.5, 0.1, 0.4], [0.5, 0.5, 0.0]]
        q = [[0.8, 0.2, 0.0], [0.1, 0.7, 0.2]]
        accept = [0.1, 0.99]
        assert block(stage(p, q, [0, 1], accept, [0.0, 0.733])) == Decision(1, 0)
        assert block(stage(p, q, [0, 1], accept, [0.0, 0.734])) == Decision(1, 2)

    def test_at_nothing_accepted_the_residual_is_the_standard_one(self) -> None:
        assert block(stage([[0.1, 0.9], A], [[0.8, 0.2]], [0], [0.5], [0.01])) == Decision(0, 1)

    def test_once_zero_c_stays_zero(self) -> None:
        """The first token has p = 0; q = 0 at the second would otherwise give infinity times 0."""
        p, q = [[0.0, 1.0], [1.0, 0.0], A], [[1.0, 0.0], [0.0, 1.0]]
        assert block(stage(p, q, [0, 0], [1e-9, 1e-9])).accepted == 0

    def test_no_draft_mass_means_accepted(self) -> None:
        assert block(stage([[0.2, 0.8], A], [[0.0, 1.0]], [0], [0.999])).accepted == 1

    def test_a_zero_denominator_accepts(self) -> None:
        """c_1 = 1 and p = q in the next row: S_1 = 0, h_1 = 1; the last token has p = 0."""
        p, q = [[0.5, 0.5], [1.0, 0.0], A], [[0.5, 0.5], [1.0, 0.0]]
        decision = block(stage(p, q, [0, 1], [0.999, 0.5], [0.5, 0.5, 0.5]))
        assert decision == Decision(1, 0)  # and the residual has no mass, so that p of the row is drawn from

    def test_point_masses(self) -> None:
        """c_1 = .6, S_1 = .6 * (1 - .5) = .3, h_1 = .3 / .7 = .42857; c_2 = .3."""
        p = [[0.6, 0.4], [0.5, 0.5], A]
        assert block(stage(p, None, [0, 0], [0.4285, 0.31])) == Decision(1, 1)
        assert block(stage(p, None, [0, 0], [0.4286, 0.31])) == Decision(0, 1)
        assert block(stage(p, None, [0, 0], [0.9, 0.29], [0.5, 0.5, 0.3])) == Decision(2, 0)

    def test_a_placeholder_shortens_k(self) -> None:
        """With one token drawn, h_1 = c_1, and all stood means p of row 1, not a residual."""
        target, draft = logs([0.5, 0.5], [1, 0], [0, 1]), logs([0.25, 0.75], [0.9, 0.1])
        assert run(target, [0, -1], draft, seed=1, method="block").token_ids == [0, 0]


@pytest.mark.parametrize(("method", "expected"), [(standard, 10 / 9), (block, 11 / 9)])
def test_expected_accepted_tokens(method: Callable[[Stage], Decision], expected: float) -> None:
    """Exact: every accept threshold is a multiple of 1/4, so the midpoints of quarters integrate over the uniforms."""
    midpoints = [0.125, 0.375, 0.625, 0.875]
    total = 0.0
    for drafts in itertools.product((0, 1), repeat=2):
        weight = B[drafts[0]] * B[drafts[1]]
        for accept in itertools.product(midpoints, repeat=2):
            total += weight / 16 * method(stage([A] * 3, [B] * 2, drafts, accept)).accepted
    assert total == pytest.approx(expected, abs=1e-12)


class TestLossyMethods:
    def test_synthetic_takes_rates_and_nothing_else(self) -> None:
        params = Params(method="synthetic", synthetic_rates=(0.5, 0.5, 1.0))
        p = [[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.25, 0.75]]
        assert methods.decide(stage(p, None, [0, 0, 0], [0.49, 0.5, 0.0]), params) == Decision(1, 1)
        assert methods.decide(stage(p, None, [0, 0, 0], [0.49, 0.49, 1 - 1e-9], [0, 0, 0, 0.2]), params) == Decision(
            3, 0
        )

    def test_synthetic_draws_from_p_and_not_from_a_residual(self) -> None:
        params = Params(method="synthetic", synthetic_rates=(0.0,))
        assert methods.decide(stage([A, A], None, [0], [0.5], [0.3]), params) == Decision(0, 0)

    def test_synthetic_may_emit_what_a_mask_forbids(self) -> None:
        outcome = run(
            rows([1.0, 1.0], [1.0, 1.0]), [0], method="synthetic", synthetic_rates=[1.0], allowed_token_ids=[1],
            logprobs_modes=["processed_logprobs", "raw_logprobs"],
        )  # fmt: skip
        assert outcome.token_ids == [0, 1]
        processed = outcome.logprobs["processed_logprobs"]
        assert (processed.tokens, processed.ranks, processed.cumulative) == ([-np.inf, 0.0], [2, 1], -np.inf)
        assert outcome.logprobs["raw_logprobs"].tokens == pytest.approx([-np.log(2)] * 2)

    def test_typical_is_below_an_entropy_threshold(self) -> None:
        """Four equal: exp(-H) = 1/4, so delta = .8 asks for more than .2, and delta = 1 for more than .25 = p."""
        four = [[0.25] * 4, [0.25] * 4]
        wide, narrow = (
            Params(method="typical", typical_epsilon=1.0, typical_delta=0.8),
            Params(method="typical", typical_epsilon=0.2, typical_delta=1.0),
        )
        assert methods.decide(stage(four, None, [3], draw=[0.1, 0.1]), wide).accepted == 1
        assert methods.decide(stage(four, None, [3], draw=[0.1, 0.1]), narrow).accepted == 1
        low = Params(method="typical", typical_epsilon=0.26, typical_delta=1.0)
        assert methods.decide(stage([[0.25, 0.25, 0.5], A], None, [0], draw=[0.9, 0.1]), low) == Decision(0, 2)

    def test_relaxed_needs_rank_and_margin(self) -> None:
        target = rows([3.0, 2.0, 2.0, 0.0], [9.0, 0.0, 0.0, 0.0])

        def accepted(token: int, top_n: int, margin: float, **params: Json) -> int:
            relaxed: dict[str, Json] = {
                "method": "relaxed",
                "relaxed_top_n": top_n,
                "relaxed_margin": margin,
                "seed": 1,
            }
            return run(target, [token], **relaxed, **params).num_accepted

        assert [accepted(1, n, 1.0) for n in (2, 3)] == [0, 1]  # two at 2.0: both have rank 3
        assert [accepted(1, 3, m) for m in (0.99, 1.0)] == [0, 1]
        assert [accepted(1, 3, m, temperature=0.5) for m in (1.99, 2.0)] == [0, 1]  # processed logits are tempered
        assert accepted(1, 4, 99.0, top_k=1) == 0  # and filtered
        assert accepted(3, 4, 99.0, allowed_token_ids=[0, 1]) == 0

    def test_at_temperature_zero_the_final_token_is_the_argmax(self) -> None:
        target = rows([2.0, 1.9, 0.0], [0.0, 1.0, 1.0])
        for params in (
            {"method": "synthetic", "synthetic_rates": [1.0]},
            {"method": "typical", "typical_delta": 0.5},
            {"method": "relaxed", "relaxed_top_n": 2, "relaxed_margin": 0.5},
        ):
            outcome = run(target, [1], temperature=0.0, **params)
            assert (outcome.token_ids, outcome.lossy) == ([1, 1], True)

    def test_only_these_three_say_lossy(self) -> None:
        for method in ("standard", "strict", "block"):
            assert not run(rows([0.0, 1.0]), method=method).lossy


class TestPlaceholders:
    @pytest.mark.parametrize("method", ["standard", "strict", "block", "typical"])
    def test_nothing_from_the_first_one_on_is_accepted(self, method: str) -> None:
        """The final token is drawn from p of that row: only id 1 has mass there."""
        target = logs([0.0, 1.0], [1.0, 0.0], [1.0, 0.0])
        assert run(target, [-1, 0], method=method, seed=2).token_ids == [1]

    def test_greedy(self) -> None:
        assert run(rows([0.0, 1.0], [1.0, 0.0], [1.0, 0.0]), [1, -1], temperature=0.0).token_ids == [1, 0]

    def test_a_placeholder_s_draft_row_is_not_read(self) -> None:
        """The draw is from p itself: with q = p a residual would have no mass."""
        outcome = run(logs([0.0, 1.0], [0.5, 0.5]), [-1], rows([np.nan, 0.0]), seed=2)
        assert (outcome.status, outcome.token_ids) == ("OK", [1])


class TestDraws:
    def test_smallest_id_whose_prefix_exceeds(self) -> None:
        p = [[0.0, 0.25, 0.0, 0.25, 0.5, 0.0]]
        wanted = {0.1: 1, 0.2499: 1, 0.25: 3, 0.4999: 3, 0.5: 4, 1 - 2**-53: 4}
        for u, token in wanted.items():
            assert draw(stage(p, None, [], draw=[u]), 0, np.array(p[0])) == token

    def test_a_residual_without_mass_falls_back_to_p(self) -> None:
        made = stage([[0.0, 1.0]], None, [1], draw=[0.5])
        assert draw_residual(made, 0, made.target(0), PointMass(1), 1.0) == 1

    def test_margin_of_a_draw_is_in_mass(self) -> None:
        made = stage([[0.5, 0.5]], None, [], draw=[0.3])
        draw(made, 0, np.array([0.01, 0.01]))
        assert made.margins.smallest().distance == pytest.approx(0.004)

    def test_margin_of_an_accept_is_in_probability(self) -> None:
        made = stage([[0.02, 0.98], A], [[0.1, 0.9]], [0], [0.15], [0.5, 0.5])
        standard(made)
        assert made.margins.smallest(("accept",)).distance == pytest.approx(0.05)

    def test_greedy_decisions_have_no_margin(self) -> None:
        made = stage([A, A], None, [1], draw=[0.3, 0.3])
        greedy(made)
        assert made.margins.recorded == []
