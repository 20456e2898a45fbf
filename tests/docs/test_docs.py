"""Every step that the documents show gives what they say it gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs import tools
from tests.docs.blocks import Example, examples

TOLERANCE = 1e-4
"""Of numbers: the contract's bound for logprobs. Rounding to 6 digits in the documents lies below it."""

EXAMPLES = examples()

BUILT_FIRST = {
    "first",
    "greedy",
    "misspelt",
    "no-logprobs",
    "placeholder",
    "plain-sampling",
    "point-mass",
    "refused",
    "refused-id",
    "wide-integers",
}
"""What every build answers. Other examples may be UNIMPLEMENTED in a build, and are skipped there, saying so."""

every_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)


def expect(shown: Any, found: Any, path: str = "result") -> None:  # noqa: ANN401  (any JSON value)
    """Asserts that a result has what a document shows of it: its keys, entries and values, and maybe more keys."""
    match shown:
        case dict():
            assert isinstance(found, dict), f"{path}: {found!r} is no object"
            for key, value in shown.items():
                assert key in found, f"{path} has no {key}: {found!r}"
                expect(value, found[key], f"{path}.{key}")
        case list():
            assert isinstance(found, list), f"{path}: {found!r} is no list"
            assert len(found) == len(shown), f"{path}: {len(found)} entries, not {len(shown)}: {found!r}"
            for i, (value, entry) in enumerate(zip(shown, found, strict=True)):
                expect(value, entry, f"{path}[{i}]")
        case "...":
            assert isinstance(found, str), f"{path}: {found!r} is no text"
            assert found, f"{path} is empty"
        case float():
            assert isinstance(found, int | float), f"{path}: {found!r} is no number"
            assert found == pytest.approx(shown, abs=TOLERANCE), path
        case _:
            assert found == shown, path
            assert isinstance(found, bool) == isinstance(shown, bool), path


def check(example: Example, found: Any) -> None:  # noqa: ANN401  (any JSON value)
    error = found.get("error", {})
    if error.get("code") == "UNIMPLEMENTED" and example.name not in BUILT_FIRST:
        pytest.skip(f"not built: {error['message']}")
    expect(example.result, found)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return tools.environment(tmp_path_factory.mktemp("bin"))


def answers(command: str, folder: Path, env: dict[str, str]) -> dict[str, Any]:
    """Sends all examples through a program at once, one a line, and returns its results by example."""
    lines = "".join(json.dumps(example.step) + "\n" for example in EXAMPLES)
    done = tools.run(command, folder, env, lines)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(EXAMPLES), done.stderr
    assert done.returncode == 1, "some examples are refusals, and the exit status says so"
    return {example.name: result for example, result in zip(EXAMPLES, results, strict=True)}


@pytest.fixture(scope="module")
def in_process(tmp_path_factory: pytest.TempPathFactory, env: dict[str, str]) -> dict[str, Any]:
    if not tools.is_built("sampler-service"):
        pytest.skip("this checkout has no sampler_service.cli")
    return answers("sampler-service verify --backend cpu -", tmp_path_factory.mktemp("in-process"), env)


@pytest.fixture(scope="module")
def through_service(tmp_path_factory: pytest.TempPathFactory, env: dict[str, str]) -> dict[str, Any]:
    for program in tools.PROGRAMS:
        if not tools.is_built(program):
            pytest.skip(f"this checkout has no {tools.PROGRAMS[program]}")
    folder = tmp_path_factory.mktemp("service")
    with tools.service(folder, env) as address:
        return answers(f"sampler-client verify --address {address} -", folder, env)


def test_names_of_what_is_built_first_are_examples() -> None:
    assert BUILT_FIRST.issubset(example.name for example in EXAMPLES)


@every_example
def test_step_in_process(example: Example, in_process: dict[str, Any]) -> None:
    check(example, in_process[example.name])


@every_example
def test_step_through_the_service(example: Example, through_service: dict[str, Any]) -> None:
    check(example, through_service[example.name])


@every_example
def test_step_in_the_independent_implementation(example: Example) -> None:
    oracle = pytest.importorskip("tests.oracle.step", reason="this checkout has no tests/oracle")
    shown = example.result
    if "error" in shown:
        # It says why in its own words, without the stable names of reasons.
        shown = {"error": {"code": shown["error"]["code"]}}
    expect(shown, oracle.run_step(example.step).result)


class TestExpect:
    """What compares the results can fail."""

    @pytest.mark.parametrize(
        ("shown", "found"),
        [
            ({"a": 1}, {}),
            ({"a": 1}, {"a": 2}),
            ([1], [1, 2]),
            ([1, 2], [1]),
            (-0.5, -0.5002),
            (-0.5, "-inf"),
            ("-inf", -1e30),
            ("...", ""),
            (None, 0),
            (False, 0),
            (1, True),
        ],
    )
    def test_tells_a_difference(self, shown: Any, found: Any) -> None:  # noqa: ANN401  (any JSON value)
        with pytest.raises(AssertionError):
            expect(shown, found)

    def test_takes_more_keys_and_rounding(self) -> None:
        expect({"a": [-0.5], "b": "..."}, {"a": [-0.50005], "b": "text", "c": 1})
