"""A rule of the contract, and small random requests that show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tests.oracle.request import Json

Params = dict[str, Json]
Rng = np.random.Generator
VOCAB = 12
K = 3


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        name: Of its files.
        says: What holds, in a line.
        make: A random request that may show it, as in a step file.
        contrast: What the same request would be without the rule: parameters to exchange, None to leave one out, or
            made from the others. Only requests are kept whose result differs then. Empty where there is nothing to
            exchange.
        dtype: Of the step's logits.
        count: Requests kept.
    """

    name: str
    says: str
    make: Callable[[Rng], dict[str, Json]]
    contrast: Mapping[str, Json] = field(default_factory=dict)
    dtype: str = "float32"
    count: int = 8

    def without(self, request: Mapping[str, Json]) -> dict[str, Json]:
        """The request without the rule."""
        given = request["params"]
        other = {name: value(given) if callable(value) else value for name, value in self.contrast.items()}
        return {**request, "params": {name: value for name, value in {**given, **other}.items() if value is not None}}


def rows(rng: Rng, count: int, width: int = VOCAB, *, step: float = 0.25, spread: float = 1.5) -> list[list[float]]:
    """Logits on a grid of ``step``: exact in every dtype, and equal now and then."""
    table: list[list[float]] = (np.round(rng.normal(size=(count, width)) * spread / step) * step + 0.0).tolist()
    return table


def request(rng: Rng, *, draft: bool = False, width: int = VOCAB, k: int = K, **params: Json) -> dict[str, Json]:
    """A request with likely drafts and a seed of 64 bits."""
    target = rows(rng, k + 1)
    made: dict[str, Json] = {"target_logits": target}
    if draft:
        near = [[x + dx for x, dx in zip(a, b, strict=True)] for a, b in zip(target[:k], rows(rng, k), strict=True)]
        extra = rows(rng, k, max(0, width - VOCAB))
        made["draft_logits"] = [(line + more)[:width] for line, more in zip(near, extra, strict=True)]
    made["draft_token_ids"] = [likely(rng, row[:width]) for row in (made["draft_logits"] if draft else target[:k])]
    made["params"] = {"seed": str(rng.integers(2**63, 2**64, dtype=np.uint64)), "position": 100, **params}
    return made


def likely(rng: Rng, row: list[float]) -> int:
    """An id drawn from the softmax of a row."""
    masses = np.exp(np.array(row) - max(row))
    return int(rng.choice(len(row), p=masses / masses.sum()))


def ids(rng: Rng, count: int, *, distinct: bool = True) -> list[int]:
    """Random ids below V."""
    return [int(i) for i in rng.choice(VOCAB, count, replace=not distinct)]


def plain(**params: Json) -> Callable[[Rng], dict[str, Json]]:
    """Requests that differ in nothing but logits, drafts and seeds."""
    return lambda rng: request(rng, **params)
