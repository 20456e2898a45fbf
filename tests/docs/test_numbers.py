"""The numbers that ``docs/semantics.md`` prints outside its step files are computed here again."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from tests.docs.blocks import ROOT
from tests.docs.decoding import chi_square, decode
from tests.docs.philox import philox4x32_10, uniform

TEXT = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
NUMBER = r"([0-9,]*\.[0-9]+)"


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def philox(counter: str, key: list[int]) -> list[int]:
    given = [[np.array([word], dtype=np.uint64) for word in part] for part in (words(counter), key)]
    return [int(word[0]) for word in philox4x32_10(*given)]


def u(seed: int, row: int, purpose: int, s: int) -> float:
    return float(uniform(np.array([seed], dtype=np.uint64), np.array([row], dtype=np.uint64), purpose, s)[0])


def test_known_answers() -> None:
    rows = re.findall(r"^\| `([0-9a-f ]+)` \| `([0-9a-f ]+)` \| `([0-9a-f ]+)` \|$", TEXT, re.MULTILINE)
    assert len(rows) == 3
    for counter, key, answer in rows:
        assert philox(counter, words(key)) == words(answer)


def test_uniforms_of_seed_7() -> None:
    rows = re.findall(rf"^\| [a-z]+.*, row \d \| `([0-9 ]+)` \| `([0-9a-f ]+)` \| {NUMBER} \|$", TEXT, re.MULTILINE)
    assert len(rows) == 4
    for counter, answer, value in rows:
        position, _, purpose, s = words(counter)
        assert philox(counter, [7, 0])[:2] == words(answer)
        assert u(7, position, purpose, s) == float(value)


def test_uniforms_of_the_examples() -> None:
    rows = re.findall(rf"^\| (\d+) \| {NUMBER}" + rf" \| {NUMBER}" * 5 + r" \|$", TEXT, re.MULTILINE)
    assert [int(row[0]) for row in rows] == [2, 6, 7, 11]
    for seed, *values in rows:
        found = [u(int(seed), j, 0, j) for j in range(3)] + [u(int(seed), j, 1, 0) for j in range(3)]
        assert [float(value) for value in values] == pytest.approx(found, abs=5e-5)


def test_mean_accepted_of_block_and_standard() -> None:
    # The table of the two-token example: sums over all drafts of chance x mean, as the section on block gives it.
    p, q = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])
    standard = block = 0.0
    for drafts in product(range(2), repeat=2):
        chance = float(np.prod(q[list(drafts)]))
        first, second = (min(1.0, p[x] / q[x]) for x in drafts)
        standard += chance * (first + first * second)
        c_1 = first
        c_2 = min(1.0, c_1 * p[drafts[1]] / q[drafts[1]])
        s_1 = float(np.maximum(c_1 * p - q, 0.0).sum())
        h_1 = s_1 / (s_1 + 1.0 - c_1)
        block += chance * (2 * c_2 + (1.0 - c_2) * h_1)
    assert standard == pytest.approx(10 / 9)
    assert block == pytest.approx(11 / 9)
    assert "**11/9** | **10/9**" in TEXT


@pytest.mark.distribution
@pytest.mark.parametrize("method", ["block", "standard"])
@pytest.mark.parametrize("with_s", [True, False], ids=["with s", "without s"])
def test_what_goes_wrong_without_s(method: str, with_s: bool) -> None:
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    tokens = decode(method, p, q, k=3, seeds=400_000, length=3, with_s=with_s)
    found = chi_square(tokens[:, 2], p), chi_square(tokens[:, 1:3], p)
    row = re.search(rf"^\| {method}, with{'' if with_s else 'out'} s \| {NUMBER} \| {NUMBER} \|$", TEXT, re.MULTILINE)
    assert row is not None
    # The seeds are fixed, so the statistic is a fixed number, printed to one digit. The room beyond that is for a draw
    # at the very edge of a step of the CDF, which another processor's sums may put on the other side.
    shown = [float(value.replace(",", "")) for value in row.groups()]
    assert shown == pytest.approx(found, rel=1e-3, abs=0.1)
    # Where the law holds, df + 10 sqrt(2 df) is exceeded by chance once in 60,000 (df 2), once in 10 million (df 8).
    holds = all(statistic < df + 10 * (2 * df) ** 0.5 for statistic, df in zip(found, (2, 8), strict=True))
    assert holds == (with_s or method == "standard")
