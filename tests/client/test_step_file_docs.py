"""What ``docs/step-file.md`` says is what is read."""

from __future__ import annotations

import re
import textwrap
from dataclasses import fields
from pathlib import Path

from sampler_client import SamplingParams
from sampler_client.stepfile import parse_step
from sampler_client.stepfile.params import RequestColumns

PAGE = (Path(__file__).parents[2] / "docs" / "step-file.md").read_text()


def test_every_parameter_is_named_and_nothing_else() -> None:
    section = PAGE.partition("## Params")[2].partition("## The output")[0]
    named = set(re.findall(r"`([a-z_]+)`", section.partition("\n\n")[2].partition("\n\n")[2]))
    assert named == {field.name for kind in (SamplingParams, RequestColumns) for field in fields(kind)}


def test_example_is_a_step() -> None:
    example = re.search(r"(?:^    .*\n)+", PAGE, flags=re.MULTILINE)
    assert example is not None
    step = parse_step(textwrap.dedent(example.group()))
    assert (step.draft_lengths, step.seeds) == ([2], [7])
    assert step.params[0].top_logprobs == 2
