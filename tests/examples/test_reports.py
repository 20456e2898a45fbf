import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console

from engine.checks import Check
from engine.corpus import Corpus, Vocabulary
from engine.decode import decode
from engine.findings import Findings, percentiles_ms
from engine.json_report import json_report
from engine.models import Models
from engine.runs import Settings
from engine.text_report import print_report
from engine.token_rows import token_row
from engine.verifier import EmittedToken, Params, TopEntry
from tests.examples.fake_verifier import FakeVerifier


@pytest.fixture(scope="module")
def findings(corpus: Corpus, models: Models) -> Findings:
    runs = [
        decode(models.target, models.draft, FakeVerifier(), corpus.prompts[:3], Settings(Params(t, 3), 12))
        for t in (0.8, 0.0)
    ]
    checks = [Check("it holds", True, "3 of 3"), Check("it holds too", True, "4 of 4")]
    return Findings(corpus, models, "a fake of the service", runs[0], runs[1], checks, 1.5)


def _printed(findings: Findings, *, terminal: bool = False) -> str:
    out = io.StringIO()
    print_report(findings, Console(file=out, width=100, force_terminal=terminal))
    return out.getvalue()


def test_a_token_row_has_the_promised_form() -> None:
    vocabulary = Vocabulary.of([("a", "b", "c", "it's")])
    ids = vocabulary.ids
    top = (TopEntry(ids["a"], -0.1068), TopEntry(ids["b"], -2.482), TopEntry(ids["c"], -4.3571))
    assert token_row(EmittedToken(ids["a"], -0.1068, 1, top), vocabulary) == (
        "a (-0.107) | top: ['a':-0.107, 'b':-2.482, 'c':-4.357]"
    )
    assert token_row(EmittedToken(ids["\n"], -1.0, 1, ()), vocabulary) == r"\n (-1.000) | top: []"
    assert token_row(EmittedToken(ids["it's"], -1.0, 2, (TopEntry(0, -0.5),)), vocabulary) == (
        r"it's (-1.000) | top: ['\n':-0.500]"
    )


def test_the_text_view_lists_every_token_of_the_shown_run(findings: Findings) -> None:
    lines = _printed(findings).splitlines()
    rows = [line for line in lines if re.fullmatch(r".+ \(-?\d+\.\d{3}\) \| top: \[(.+:-?\d+\.\d{3}(, )?){3}\]", line)]
    vocabulary = findings.corpus.vocabulary
    assert rows == [token_row(token, vocabulary) for request in findings.shown.requests for token in request.emitted]
    assert all(line == line.rstrip() for line in lines)


def test_the_text_view_shows_text_counts_and_verdict(findings: Findings) -> None:
    printed = " ".join(_printed(findings).split())
    vocabulary = findings.corpus.vocabulary
    for request in findings.shown.requests:
        assert " ".join(vocabulary.decode(request.token_ids).replace("\n", " ¶ ").split()) in printed
    first = findings.shown.acceptance_by_position[0]
    assert f"1: {first.accepted / first.drafted:.0%} ({first.accepted}/{first.drafted})" in printed
    assert f"tokens per step {findings.shown.tokens_per_step:.2f} of at most 5" in printed
    assert "p50" in printed
    assert "ok it holds 3 of 3" in printed
    assert printed.endswith("all 2 checks hold; 1.5 s in all")


def test_a_failed_check_is_said_in_both_views(findings: Findings) -> None:
    failed = replace(findings, checks=[*findings.checks, Check("it does not", False, "0 of 3")])
    assert "FAILED  it does not" in _printed(failed)
    assert _printed(failed).rstrip().endswith("1 of 3 checks FAILED; 1.5 s in all")
    assert json_report(failed)["passed"] is False


def test_colour_only_on_a_terminal(findings: Findings) -> None:
    assert "\x1b" not in _printed(findings)
    assert "\x1b[32m" in _printed(findings, terminal=True)


def test_the_json_view_holds_both_runs_whole(findings: Findings) -> None:
    report = json.loads(json.dumps(json_report(findings)))
    assert report["passed"] is True
    assert report["corpus"]["vocab_size"] == len(findings.corpus.vocabulary)
    assert [run["temperature"] for run in report["runs"]] == [0.8, 0.0]
    for shown, run in zip(report["runs"], (findings.shown, findings.other), strict=True):
        assert shown["num_steps"] == len(run.verify_seconds)
        assert set(shown["verify_ms"]) == {"p50", "p90", "p99", "max"}
        for listed, request in zip(shown["requests"], run.requests, strict=True):
            assert listed["seed"] == request.seed
            tokens = [
                EmittedToken(
                    token["token_id"],
                    token["logprob"],
                    token["rank"],
                    tuple(TopEntry(entry["token_id"], entry["logprob"]) for entry in token["top"]),
                )
                for token in listed["tokens"]
            ]
            assert tokens == request.emitted
            assert [token["stood"] for token in listed["tokens"]] == request.stood


def test_percentiles_are_by_nearest_rank() -> None:
    seconds = tuple(i / 1000 for i in range(100, 0, -1))
    assert percentiles_ms(seconds) == pytest.approx({"p50": 50, "p90": 90, "p99": 99, "max": 100})
    assert percentiles_ms((0.002,)) == {"p50": 2.0, "p90": 2.0, "p99": 2.0, "max": 2.0}
    assert percentiles_ms((0.001, 0.002, 0.003)) == pytest.approx({"p50": 2.0, "p90": 3.0, "p99": 3.0, "max": 3.0})
