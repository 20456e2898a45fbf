"""Each rule of processing on rows small enough to work by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracle.builders import logs, request, rows, run
from tests.oracle.margins import Margins
from tests.oracle.processing import adjust, process_row
from tests.oracle.request import Json

INF = float("inf")


def kept(row: list[float], **params: Json) -> list[int]:
    """The ids that the filters leave of one row."""
    processed = process_row(request(rows(row), **params), 0, Margins())
    assert np.all((processed.p > 0) == processed.kept)
    return [int(i) for i in np.flatnonzero(processed.kept)]


def adjusted(target: list[list[float]], drafts: list[int], row: int, **params: Json) -> list[float]:
    """One row after everything before temperature."""
    return [float(x) for x in adjust(request(rows(*target), drafts, **params), row)]


class TestFilters:
    def test_top_k_takes_the_lowest_ids_of_a_tie(self) -> None:
        assert kept([0.0, 1.0, 1.0, 2.0, 1.0], top_k=2) == [1, 3]

    def test_top_k_keeps_no_more_than_the_masks_left(self) -> None:
        assert kept([0.0, -INF, 1.0, -INF], top_k=3) == [0, 2]

    @pytest.mark.parametrize("top_k", [0, 5, 9])
    def test_top_k_off(self, top_k: int) -> None:
        assert kept([0.0, 1.0, 1.0, 2.0, 1.0], top_k=top_k) == [0, 1, 2, 3, 4]

    def test_top_p_on_ten_equal_logits(self) -> None:
        """Mass before id 8 is 0.8: not below 0.8 - 1e-5."""
        assert kept([1.0] * 10, top_p=0.8) == list(range(8))

    def test_top_p_takes_what_crosses_the_threshold(self) -> None:
        assert kept([float(x) for x in np.log([0.1, 0.2, 0.3, 0.4])], top_p=0.5) == [2, 3]

    def test_top_p_keeps_at_least_one(self) -> None:
        assert kept([0.0, 3.0, 3.0], top_p=1e-6) == [1]

    def test_top_p_one_drops_nothing(self) -> None:
        assert kept([0.0, 60.0, -60.0], top_p=1.0) == [0, 1, 2]

    def test_min_p_on_a_natural_tie(self) -> None:
        assert kept([0.0, float(np.float32(np.log(0.25)))], min_p=0.25) == [0, 1]

    def test_min_p_works_on_the_tempered_row(self) -> None:
        """At T = 2 a gap of 2 is a factor e: above 0.3, below 0.4."""
        assert kept([0.0, -2.0], min_p=0.3, temperature=2.0) == [0, 1]
        assert kept([0.0, -2.0], min_p=0.4, temperature=2.0) == [0]

    def test_min_p_one_keeps_every_equal_of_the_best(self) -> None:
        assert kept([2.0, 1.0, 2.0, 2.0], min_p=1.0) == [0, 2, 3]

    def test_each_filter_sees_what_the_one_before_left(self) -> None:
        """Of what top-k leaves .4 / .7 = .571 lies before the second: top_p .55 drops it, but keeps it of all four."""
        row = [float(x) for x in np.log([0.4, 0.3, 0.2, 0.1])]
        assert kept(row, top_k=2, top_p=0.55) == [0]
        assert kept(row, top_p=0.55) == [0, 1]

    def test_min_p_comes_before_top_p(self) -> None:
        """min-p leaves .5 .3; .5 / .8 = .625 lies before the second."""
        row = [float(x) for x in np.log([0.5, 0.3, 0.1, 0.1])]
        assert kept(row, min_p=0.5, top_p=0.6) == [0]
        assert kept(row, top_p=0.6) == [0, 1]

    def test_order_is_taken_before_temperature(self) -> None:
        """The larger logit stays first, however a division may round."""
        low = np.float32(1.0)
        high = np.nextafter(low, np.float32(2.0))
        assert kept([float(low), float(high)], top_k=1, temperature=3e7) == [1]

    def test_nothing_but_masks_and_penalties_applies_at_temperature_zero(self) -> None:
        made = request(rows([0.0, 1.0, 2.0]), temperature=0.0, top_k=1, top_p=0.1, min_p=1.0)
        assert list(process_row(made, 0, Margins()).logits) == [0.0, 1.0, 2.0]

    def test_margins_are_the_distance_to_the_threshold(self) -> None:
        margins = Margins()
        process_row(request(rows([1.0] * 10), top_p=0.8), 0, margins)
        assert margins.smallest().decision == "top_p at row 0"
        assert margins.smallest().distance == pytest.approx(1e-5)


class TestEdits:
    def test_mask_for_the_request_and_by_row(self) -> None:
        two = [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]
        assert adjusted(two, [0], 1, allowed_token_ids=[0, 1]) == [1.0, 2.0, -INF]
        assert adjusted(two, [0], 1, allowed_token_ids_by_row=[[0], [1, 2]]) == [-INF, 2.0, 3.0]

    def test_bias_comes_before_penalties(self) -> None:
        """-1 + 3 = 2 is positive, so the repetition penalty divides it."""
        assert adjusted([[-1.0, 0.0]], [], 0, logit_bias={0: 3.0}, repetition_penalty=2.0, prompt_token_ids=[0]) == [
            1.0,
            0.0,
        ]

    def test_bias_does_not_bring_back_what_is_masked(self) -> None:
        assert adjusted([[1.0, 2.0]], [], 0, allowed_token_ids=[1], logit_bias={0: 100.0}) == [-INF, 2.0]

    def test_min_tokens_counts_the_output_and_the_rows_before(self) -> None:
        three = [[1.0, 2.0]] * 3
        params = {"stop_token_ids": [1], "min_tokens": 5, "num_output_tokens": 3}
        assert [adjusted(three, [0, 0], j, **params)[1] for j in range(3)] == [-INF, -INF, 2.0]
        params = {"stop_token_ids": [1], "min_tokens": 2, "output_token_ids": [0]}
        assert [adjusted(three, [0, 0], j, **params)[1] for j in range(3)] == [-INF, 2.0, 2.0]

    def test_repetition_covers_prompt_output_and_draft(self) -> None:
        target = [[2.0, 2.0, -2.0, 2.0, 0.0]] * 2
        params = {"prompt_token_ids": [0, 9, -3], "output_token_ids": [2], "repetition_penalty": 2.0}
        assert adjusted(target, [3], 0, **params) == [1.0, 2.0, -4.0, 2.0, 0.0]
        assert adjusted(target, [3], 1, **params) == [1.0, 2.0, -4.0, 1.0, 0.0]

    def test_frequency_and_presence_leave_the_prompt_out_and_count_the_window(self) -> None:
        target = [[8.0, 8.0, 8.0]] * 3
        params = {
            "prompt_token_ids": [0, 0], "output_token_ids": [1, 1],
            "frequency_penalty": 0.5, "presence_penalty": 1.0,
        }  # fmt: skip
        assert adjusted(target, [2, 1], 0, **params) == [8.0, 6.0, 8.0]
        assert adjusted(target, [2, 1], 1, **params) == [8.0, 6.0, 6.5]
        assert adjusted(target, [2, 1], 2, **params) == [8.0, 5.5, 6.5]

    def test_repetition_comes_before_frequency(self) -> None:
        assert adjusted([[4.0]], [], 0, output_token_ids=[0], repetition_penalty=2.0, frequency_penalty=1.0) == [1.0]

    def test_penalties_are_fp32_step_by_step(self) -> None:
        x, f, c, p = np.float32(1.1), np.float32(0.3), np.float32(3), np.float32(0.7)
        expected = x / np.float32(1.3) - (f * c + p)
        got = adjusted(
            [[1.1]], [], 0, output_token_ids=[0] * 3,
            repetition_penalty=1.3, frequency_penalty=0.3, presence_penalty=0.7,
        )  # fmt: skip
        assert got == [float(expected)]

    def test_bad_words_across_prompt_output_and_window(self) -> None:
        target = [[1.0] * 6] * 3
        params = {
            "prompt_token_ids": [5],
            "output_token_ids": [4],
            "bad_words": [[5, 4, 3], [4, 3, 2], [3, 2, 1], [2, 0]],
        }
        assert [np.flatnonzero(np.isinf(adjusted(target, [3, 2], j, **params))).tolist() for j in range(3)] == [
            [3],  # 5 4 | 3
            [2],  # 4 3 | 2
            [0, 1],  # 3 2 | 1 and 2 | 0
        ]

    def test_a_bad_word_of_one_id_is_always_masked(self) -> None:
        assert adjusted([[1.0, 2.0]], [], 0, bad_words=[[1]]) == [1.0, -INF]

    def test_a_bad_word_longer_than_the_text_does_not_apply(self) -> None:
        assert adjusted([[1.0, 2.0]], [], 0, output_token_ids=[1], bad_words=[[1, 1, 0]]) == [1.0, 2.0]

    def test_a_bad_word_prefix_is_at_the_end_and_nowhere_else(self) -> None:
        assert adjusted([[1.0, 2.0, 3.0]], [], 0, output_token_ids=[1, 2], bad_words=[[1, 0]]) == [1.0, 2.0, 3.0]

    def test_the_bonus_row_is_masked_too(self) -> None:
        outcome = run(rows([0.0, 9.0], [0.0, 9.0]), [1], temperature=0.0, allowed_token_ids_by_row=[[0, 1], [0]])
        assert outcome.token_ids == [1, 0]

    def test_the_client_s_logits_are_not_written_to(self) -> None:
        made = request(rows([1.0, 2.0]), logit_bias={0: 5.0}, allowed_token_ids=[0], bad_words=[[1]])
        adjust(made, 0)
        assert made.target_logits.tolist() == [[1.0, 2.0]]


def test_logs_are_probabilities() -> None:
    processed = process_row(request(logs([0.1, 0.2, 0.0, 0.7])), 0, Margins())
    assert processed.p == pytest.approx([0.1, 0.2, 0.0, 0.7], abs=1e-7)
