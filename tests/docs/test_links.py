"""Links inside the repository lead somewhere: the file is there, and so is the heading."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT, without_blocks

_LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_CODE = re.compile(r"`[^`]*`")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(without_blocks(page.read_text(encoding="utf-8"))):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def links(page: Path) -> list[str]:
    """The targets of a page's links, those to other sites left out."""
    text = _CODE.sub("", without_blocks(page.read_text(encoding="utf-8")))
    return [target for target in _LINK.findall(text) if not re.match(r"[a-z]+:", target)]


def fault(page: Path, target: str) -> str | None:
    """What is wrong with a link, or None."""
    place, _, anchor = target.partition("#")
    to = page if not place else (page.parent / place).resolve()
    if not to.exists():
        return f"{target}: no such file"
    if not to.is_relative_to(ROOT):
        return f"{target}: outside the repository"
    if anchor and anchor not in anchors(to):
        return f"{target}: no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    assert [problem for target in links(page) if (problem := fault(page, target))] == []


def test_finds_links_and_their_faults(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One, `two`!\n[a](#one-two) [b](#three) [c](none.md) `[d](no.md)` [e](https://a.b)\n# One two\n")
    assert links(page) == ["#one-two", "#three", "none.md"]
    assert anchors(page) == {"one-two", "one-two-1"}
    assert fault(page, "none.md") == "none.md: no such file"


def test_the_semantics_have_a_table_of_contents_with_every_section() -> None:
    text = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    listed = re.findall(r"\[([^\]]+)\]\(#", text[: text.index("\n## ")])
    assert listed == sections
