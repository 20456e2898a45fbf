"""The conformance pack: every backend and the oracle give what it expects, and it shows what it says."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from tests.backends import BACKENDS
from tests.conformance.held import COMPARE, differences, results_of
from tests.conformance.pack import EXPECTED, MARGIN, PACK, REFUSALS, RULES, STEPS, expected_of, read, table
from tests.conformance.rule import Rule
from tests.oracle.request import Json
from tests.oracle.step import run_step

NAMES = [*(rule.name for rule in RULES), REFUSALS]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_backend_gives_what_is_expected(name: str, backend: str) -> None:
    results = results_of(name, backend)
    if any((one.get("error") or {}).get("code") == "UNIMPLEMENTED" for one in results):
        assert backend != "cpu", results
        pytest.skip(f"not built on {backend}: {name}")
    assert differences(name, results) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_oracle_gives_what_is_expected(name: str) -> None:
    steps = read(STEPS / f"{name}.jsonl")
    results = [run_step(step).result if name == REFUSALS else expected_of(step) for step in steps]
    assert differences(name, results) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_request_shows_its_rule_and_hangs_on_no_rounding(rule: Rule) -> None:
    for step in read(STEPS / f"{rule.name}.jsonl"):
        assert len(step["requests"]) == rule.count
        right = run_step(step)
        assert min(outcome.margins.smallest().distance for outcome in right.outcomes) >= MARGIN
        if rule.contrast:
            other = run_step(step | {"requests": [rule.without(one) for one in step["requests"]]})
            pairs = zip(right.result["requests"], other.result["requests"], strict=True)
            assert all(with_rule != without for with_rule, without in pairs)


def test_files_and_the_table_are_those_of_the_rules() -> None:
    for folder in (STEPS, EXPECTED):
        assert {path.stem for path in folder.iterdir()} == set(NAMES)
    assert len(set(NAMES)) == len(NAMES)
    assert table() in (PACK / "README.md").read_text()


def test_the_comparison_sees_every_kind_of_difference() -> None:
    right = read(EXPECTED / "raw-logprobs.jsonl")[0]
    changes: tuple[dict[str, Json], ...] = (
        {"token_ids": [*right["requests"][0]["token_ids"], 3]},
        {"num_accepted": right["requests"][0]["num_accepted"] + 1},
        {"status": "INVALID_LOGITS"},
        {"logprobs": {}},
        {"lossy": 0},
        {"bad_row": 0},
    )
    for change in changes:
        other = {"requests": [right["requests"][0] | change, *right["requests"][1:]]}
        assert list(COMPARE.differences(right, other)), change
    far = copy.deepcopy(right)
    far["requests"][0]["logprobs"]["raw_logprobs"]["tokens"][0] += 2e-4
    assert list(COMPARE.differences(right, far))
    near = copy.deepcopy(right)
    near["requests"][0]["logprobs"]["raw_logprobs"]["tokens"][0] += 5e-5
    assert list(COMPARE.differences(right, near)) == []


def test_the_command_compares_folders(tmp_path: Path) -> None:
    for path in EXPECTED.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    assert COMPARE.main([str(EXPECTED), str(tmp_path)]) == 0
    (tmp_path / "strict.jsonl").write_text((EXPECTED / "standard.jsonl").read_text())
    assert COMPARE.main([str(EXPECTED), str(tmp_path)]) == 1
    (tmp_path / "strict.jsonl").unlink()
    assert COMPARE.main([str(EXPECTED), str(tmp_path)]) == 2
