"""The figures on the page are those kept as data."""

from __future__ import annotations

import pytest

from benchmarks.tables import TABLES, markdown
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TABLES)
def test_table_is_the_data(name: str) -> None:
    assert f"\n\n{TABLES[name]()}\n" in PAGE


def test_a_table() -> None:
    assert markdown("| a | b |", [["x", 1]]) == "| a | b |\n|---|---:|\n| x | 1 |"
