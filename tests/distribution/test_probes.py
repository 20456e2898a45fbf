"""Decisions that are known beforehand; see ``probes``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.backends import BACKENDS
from tests.distribution import probes


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "probe", [probes.uniforms, probes.rare_rejections, probes.impossible_drafts, probes.ties], ids=lambda p: p.__name__
)
def test_nothing_to_complain_of(probe: Callable[[str], list[str]], backend: str) -> None:
    assert probe(backend) == []
