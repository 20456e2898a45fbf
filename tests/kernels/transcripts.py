"""Published greedy transcripts as rows of logits.

``tests/data/seed_transcripts.json`` gives, for each of 359 positions, the printed token and the three most probable
ones with logprobs to 3 decimals. A row of logits is made of each: the three logprobs, and the rest of the mass spread
evenly over the other ids, below the third.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import torch
from torch import Tensor

DATA = Path(__file__).parents[1] / "data" / "seed_transcripts.json"
VOCAB_SIZE = 8192
"""Large enough that the rest of every row, spread over it, lies below the third."""

Token = tuple[str, int]
"""A token's text, and a number that tells apart tokens of one text that stand in one list."""


@dataclass(frozen=True)
class Position:
    """One position of a transcript.

    Attributes:
        ids: The three most probable ids, in order; the first is the printed one.
        logprobs: Theirs, as published.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    def row(self) -> Tensor:
        """[VOCAB_SIZE] fp32 logits."""
        rest = 1.0 - sum(math.exp(x) for x in self.logprobs)
        # Rounding can leave less than nothing for the rest, or too much to lie below the third: no more than 5e-4.
        below_third = math.exp(self.logprobs[-1] - 1.0)
        each = rest / (VOCAB_SIZE - 3)
        row = torch.full((VOCAB_SIZE,), math.log(min(each, below_third)) if rest > 0 else -math.inf)
        row[list(self.ids)] = torch.tensor(self.logprobs)
        return row


@cache
def transcripts() -> tuple[tuple[Position, ...], ...]:
    """Every transcript, position by position."""
    given = json.loads(DATA.read_text(encoding="utf-8"))["transcripts"]
    lists = [[_listed(step["top"]) for step in transcript["steps"]] for transcript in given]
    ids = _ids([entries for steps in lists for entries in steps])
    return tuple(
        tuple(Position(tuple(ids[token] for token, _ in entries), tuple(x for _, x in entries)) for entries in steps)
        for steps in lists
    )


def _listed(top: list[dict[str, str | float]]) -> list[tuple[Token, float]]:
    texts = [str(entry["token"]) for entry in top]
    return [((text, texts[:i].count(text)), float(top[i]["logprob"])) for i, text in enumerate(texts)]


def _ids(lists: list[list[tuple[Token, float]]]) -> dict[Token, int]:
    """An id for each token, spread over the vocabulary; of equals in a list the earlier has the lower id."""
    order: TopologicalSorter[Token] = TopologicalSorter()
    for entries in lists:
        for i, (token, x) in enumerate(entries):
            order.add(token, *(before for before, y in entries[:i] if y == x))
    tokens = list(order.static_order())
    apart = VOCAB_SIZE // len(tokens)
    return {token: i * apart for i, token in enumerate(tokens)}
