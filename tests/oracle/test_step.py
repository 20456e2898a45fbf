"""What surrounds the decision: stops and lengths, bad rows, seeds, supplied log-sum-exps, the result's shape."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.oracle.builders import logs, request, rows, run
from tests.oracle.request import Json, Logits
from tests.oracle.step import cut, run_step, to_json, verify_request

NAN, INF = float("nan"), float("inf")


class TestCuts:
    @pytest.mark.parametrize(
        ("stops", "max_tokens", "kept", "reason"),
        [
            ((), None, [4, 5, 6], None),
            ((5,), None, [4, 5], "stop"),
            ((6,), None, [4, 5, 6], "stop"),
            ((), 2, [4, 5], "length"),
            ((), 3, [4, 5, 6], "length"),
            ((), 4, [4, 5, 6], None),
            ((5,), 2, [4, 5], "stop"),
            ((5,), 1, [4], "length"),
            ((5, 4), 3, [4], "stop"),
        ],
    )
    def test_table(self, stops: tuple[int, ...], max_tokens: int | None, kept: list[int], reason: str | None) -> None:
        assert cut([4, 5, 6], stops, max_tokens) == (kept, reason)

    def test_counts_and_reports_describe_what_is_left(self) -> None:
        target = rows([0.0, 2.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 2.0])
        outcome = run(target, [1, 0], temperature=0.0, stop_token_ids=[0], acceptance_probabilities=True)
        assert (outcome.token_ids, outcome.num_accepted, outcome.finish_reason) == ([1, 0], 2, "stop")
        assert len(outcome.logprobs["raw_logprobs"].tokens) == 2
        assert outcome.acceptance_probabilities == [1.0, 1.0]
        outcome = run(target, [1, 2], temperature=0.0, max_tokens=1, acceptance_probabilities=True)
        assert (outcome.token_ids, outcome.num_accepted, outcome.finish_reason) == ([1], 1, "length")
        assert outcome.acceptance_probabilities == [1.0]
        outcome = run(target, [1, 2], temperature=0.0, stop_token_ids=[0], acceptance_probabilities=True)
        assert (outcome.token_ids, outcome.num_accepted, outcome.finish_reason) == ([1, 0], 1, "stop")
        assert outcome.acceptance_probabilities == [1.0, 0.0]


def spoiled(target: Logits, row: int, value: float, column: int | None = None) -> Logits:
    bad = target.copy()
    bad[row, slice(None) if column is None else column] = value
    return bad


class TestBadRows:
    TARGET = rows([0.0, 9.0, 0.0], [9.0, 0.0, 0.0], [0.0, 9.0, 0.0])

    @pytest.mark.parametrize("value", [NAN, INF])
    def test_only_needed_rows_count(self, value: float) -> None:
        """Drafts 1, 2 end at row 1: row 2 is not needed."""
        for row, status in ((0, "INVALID_LOGITS"), (1, "INVALID_LOGITS"), (2, "OK")):
            outcome = run(spoiled(self.TARGET, row, value, 2), [1, 2], temperature=0.0)
            assert outcome.status == status
            assert outcome.bad_row == (row if status != "OK" else None)
            assert outcome.token_ids == ([1, 0] if status == "OK" else [])
            assert outcome.num_accepted == (1 if status == "OK" else 0)

    def test_rows_before_a_cut_are_still_needed(self) -> None:
        outcome = run(spoiled(self.TARGET, 2, NAN, 0), [1, 0], temperature=0.0, max_tokens=1)
        assert (outcome.status, outcome.bad_row) == ("INVALID_LOGITS", 2)

    def test_nan_is_bad_where_it_is_masked_too(self) -> None:
        outcome = run(spoiled(self.TARGET, 0, NAN, 2), [1, 2], temperature=0.0, allowed_token_ids=[0, 1])
        assert outcome.bad_row == 0

    def test_minus_infinity_is_a_legal_logit(self) -> None:
        assert run(spoiled(self.TARGET, 0, -INF, 0), [1, 2], temperature=0.0).status == "OK"

    @pytest.mark.parametrize("method", ["standard", "strict", "block", "typical"])
    @pytest.mark.parametrize("temperature", [0.0, 0.7])
    def test_nothing_left_after_masking(self, method: str, temperature: float) -> None:
        target = spoiled(self.TARGET, 0, -INF, 1)
        outcome = run(target, [1, 0], method=method, temperature=temperature, allowed_token_ids=[1])
        assert (outcome.status, outcome.bad_row) == ("INVALID_LOGITS", 0)

    def test_block_needs_every_row_that_was_drafted(self) -> None:
        target, draft = logs([0.0, 1.0], [1.0, 0.0], [0.5, 0.5]), logs([0.5, 0.5], [0.5, 0.5])
        params: dict[str, Json] = {"method": "block", "seed": 1}
        assert run(target, [0, 0], draft, **params).token_ids == [1]
        assert run(spoiled(target, 2, NAN, 0), [0, 0], draft, **params).bad_row == 2
        assert run(target, [0, 0], spoiled(draft, 1, NAN, 0), **params).bad_row == 1
        assert run(spoiled(target, 2, NAN, 0), [0, -1], draft, **params).status == "OK"
        assert run(target, [0, 0], spoiled(draft, 1, NAN, 0), method="standard", seed=1).status == "OK"

    @pytest.mark.parametrize(("value", "column"), [(NAN, 0), (INF, 0), (-INF, None)])
    def test_draft_rows_where_they_are_read(self, value: float, column: int | None) -> None:
        target, draft = logs([0.0, 1.0], [1.0, 0.0]), spoiled(logs([0.5, 0.5]), 0, value, column)
        assert run(target, [1], draft, seed=1).bad_row == 0
        for params in (
            {"temperature": 0.0},
            {"method": "strict"},
            {"method": "typical"},
            {"draft_temperature": 0.0},
        ):
            assert run(target, [1], draft, seed=1, **params).status == "OK"

    def test_the_lowest_bad_row_is_named(self) -> None:
        target, draft = spoiled(self.TARGET, 1, NAN, 0), spoiled(rows([0.0] * 3, [0.0] * 3), 0, NAN, 1)
        assert run(target, [1, 0], draft, method="block").bad_row == 0

    def test_other_requests_are_untouched(self) -> None:
        good = {"target_logits": [[0.0, 1.0]], "draft_token_ids": [], "params": {"seed": 4}}
        bad = good | {"target_logits": [[0.0, "nan"]]}
        alone = run_step({"vocab_size": 2, "dtype": "float32", "requests": [good]}).result["requests"][0]
        together = run_step({"vocab_size": 2, "dtype": "float32", "requests": [good] * 3 + [bad] + [good] * 4}).result
        assert [r == alone for r in together["requests"]] == [True] * 3 + [False] + [True] * 4
        assert together["requests"][3]["status"] == "INVALID_LOGITS"


class TestSuppliedLogsumexps:
    TARGET = logs([0.5, 0.5], [0.25, 0.75], [1.0, 0.0])
    DRAFT = logs([0.5, 0.5], [0.9, 0.1])

    def outcome(self, target: Logits, draft: Logits, target_lse: list[float], **params: Json) -> Json:
        modes = ["processed_logprobs", "raw_logprobs"]
        wanted: dict[str, Json] = {"ranks": False, "logprobs_modes": modes, "seed": 1, **params}
        return run(target, [0, 0], draft, target_logsumexp=target_lse, draft_logsumexp=[0.0, 0.0], **wanted)

    def test_equals_the_step_without_them(self) -> None:
        for seed in range(40):
            plain = run(self.TARGET, [0, 0], self.DRAFT, seed=seed, logprobs_modes=["processed_logprobs"])
            given = self.outcome(self.TARGET, self.DRAFT, [0.0, 0.0, 0.0], seed=seed)
            assert given.token_ids == plain.token_ids
            for mode in ("processed_logprobs", "raw_logprobs"):
                got = given.logprobs[mode].tokens
                assert got == pytest.approx(plain.logprobs["processed_logprobs"].tokens, abs=1e-6)

    def test_only_the_row_drawn_from_is_checked(self) -> None:
        """Row 0 always stands here. With seed 1 and p(0) = 0 in row 1, the draw is from row 1."""
        target = logs([0.5, 0.5], [0.0, 1.0], [1.0, 0.0])
        assert self.outcome(target, self.DRAFT, [0.0009, 0.0, 5.0]).token_ids == [0, 1]
        assert self.outcome(target, self.DRAFT, [0.0, 0.0009, 0.0]).status == "OK"
        assert self.outcome(target, self.DRAFT, [0.0, 0.0011, 0.0]).bad_row == 1
        assert self.outcome(target, self.DRAFT, [0.0, -0.0011, 0.0]).bad_row == 1
        nan = spoiled(target, 0, NAN, 1)
        assert self.outcome(nan, self.DRAFT, [0.0] * 3).token_ids == [0, 1]
        assert self.outcome(spoiled(target, 0, NAN, 0), self.DRAFT, [0.0] * 3).bad_row == 0
        assert self.outcome(spoiled(target, 1, NAN, 1), self.DRAFT, [0.0] * 3).bad_row == 1
        assert self.outcome(target, spoiled(self.DRAFT, 1, NAN, 1), [0.0] * 3).bad_row == 1

    def test_a_supplied_value_is_of_the_row_over_the_temperature(self) -> None:
        target = rows([2.0, 0.0])
        lse = math.log(math.e + 1)
        made = request(
            target, temperature=2.0, target_logsumexp=[lse], ranks=False, logprobs_modes=["processed_logprobs"]
        )
        outcome = verify_request(made, seed=3)
        assert outcome.status == "OK"
        value = {0: 1.0 - lse, 1: -lse}[outcome.token_ids[0]]
        assert outcome.logprobs["processed_logprobs"].tokens == pytest.approx([value])


class TestSeedsAndResults:
    def test_a_seedless_request_takes_the_seed_it_is_handed(self) -> None:
        target = logs([0.25, 0.25, 0.5])
        for seed in range(20):
            assert verify_request(request(target), seed).token_ids == run(target, seed=seed).token_ids
        assert verify_request(request(target), 17).seed == 17

    def test_the_high_words_of_seed_and_position_matter(self) -> None:
        row = np.zeros((1, 4096), dtype=np.float32)
        tokens = [
            run(row, seed=s, position=p).token_ids for s, p in ((1, 0), (1 + 2**63, 0), (1, 2**32), (1, 1), (2, 0))
        ]
        assert len({t[0] for t in tokens}) == 5

    def test_shape_of_the_result(self) -> None:
        made = run(
            rows([0.0, 1.0, -INF]), seed=2**53, logprobs_modes=["raw_logits"], top_logprobs=5, logprob_token_ids=[2, 0],
        )  # fmt: skip
        token = made.token_ids[0]
        assert to_json(made) == {
            "status": "OK",
            "token_ids": [token],
            "num_accepted": 0,
            "seed": str(2**53),
            "finish_reason": None,
            "lossy": False,
            "bad_row": None,
            "logprobs": {
                "raw_logits": {
                    "tokens": [float(token)],
                    "ranks": [2 - token],
                    "cumulative": None,
                    "top": [[{"token_id": 1, "value": 1.0}, {"token_id": 0, "value": 0.0}]],
                    "chosen": [[{"token_id": 2, "value": "-inf"}, {"token_id": 0, "value": 0.0}]],
                }
            },
        }

    def test_a_refused_step_has_an_error_and_nothing_else(self) -> None:
        refused = run_step({"vocab_size": 2, "dtype": "float32", "requests": []})
        assert list(refused.result) == ["error"]
        assert refused.result["error"]["code"] == "INVALID_ARGUMENT"
