"""What ``docs/stepfile.md`` says is what is read and printed. Its examples are run by ``tests/docs``."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

from sampler_client import SamplingParams
from sampler_client.stepfile import parse_step, render_result
from sampler_client.stepfile.params import RequestColumns
from tests.client.transports import accepting

PAGE = (Path(__file__).parents[2] / "docs" / "stepfile.md").read_text(encoding="utf-8")
STEP = """{"vocab_size": 2, "draft_dtype": null, "requests": [{"target_logits": [[0, 1], [1, 0]], "draft_token_ids": [1],
    "params": {"acceptance_probabilities": true, "top_logprobs": 1, "logprob_token_ids": [0]}}]}"""


def rows(heading: str, table: int = 0) -> dict[str, list[str]]:
    """A section's table by the key in its first column."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)[table]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found.splitlines()[2:]]
    return {cell[0].strip("| `"): cell[1:] for cell in cells}


def test_every_parameter_is_named_and_nothing_else() -> None:
    assert rows("Parameters").keys() == {
        field.name for kind in (SamplingParams, RequestColumns) for field in fields(kind)
    }


def test_defaults_are_those_of_the_reader() -> None:
    params = SamplingParams()
    shown = {name: cells[1] for name, cells in rows("Parameters").items()}
    for name, text in shown.items():
        default = getattr(params, name, None)
        if isinstance(default, bool):
            assert text == str(default).lower(), name
        elif isinstance(default, int | float):
            assert float(text) == default, name
    assert [json.loads(shown[name].strip("`")) for name in ("method", "logprobs_modes")] == [
        params.method.value,
        [mode.value for mode in params.logprobs_modes],
    ]


def test_keys_of_step_and_request_are_read() -> None:
    # The reader refuses a key that it does not know, so null under every key shows that it knows them all.
    step, request = json.loads(STEP), json.loads(STEP)["requests"][0]
    known_to_step = {key: step.get(key) for key in rows("The step")}
    known_to_request = {key: request.get(key) for key in rows("A request")}
    assert known_to_step.keys() >= step.keys()
    assert known_to_request.keys() >= request.keys()
    assert parse_step(json.dumps({**known_to_step, "requests": [known_to_request]})).draft_lengths == [1]


def test_keys_of_the_result_are_printed() -> None:
    step = parse_step(STEP)
    (request,) = json.loads(render_result(step, accepting(step)))["requests"]
    assert request.keys() == rows("The result").keys()
    assert request["logprobs"]["raw_logprobs"].keys() == rows("The result", 1).keys()
