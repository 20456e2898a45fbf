"""Decodes whole sequences through a method over a small Markov model, and compares their law with the target's.

The target and draft models are tables [V, V] of next-token distributions given the last token, so that the law of
every position and of every adjacent pair is known in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.oracle import philox
from tests.oracle.builders import target_row
from tests.oracle.margins import Margins
from tests.oracle.methods import Decision, Stage
from tests.oracle.request import Floats
from tests.oracle.rows import DraftRow, FullDraft, PointMass, TargetRow

FIRST_CONTEXT = 0
"""The token that every sequence follows."""


class _NoMargins(Margins):
    """Margins are of no interest over many seeds, and would only fill memory."""

    def add(self, name: str, row: int, distance: float) -> None:
        pass


@dataclass(frozen=True)
class Models:
    """Target and draft: [V, V] rows by last token. point_mass: whether the method is told q or only the token."""

    target: Floats
    draft: Floats
    point_mass: bool = False


AcceptUniform = Callable[[int, int, int], float]
"""(seed, position of row 0, row) -> the uniform of the accept decision at that row."""


def decode(
    models: Models,
    method: Callable[[Stage], Decision],
    seed: int,
    length: int,
    k: int,
    accept_uniform: AcceptUniform = philox.accept_uniform,
) -> list[int]:
    """`length` tokens after FIRST_CONTEXT, decoded in as many steps of k drafts as it takes."""
    targets: list[TargetRow] = [target_row(p) for p in models.target]
    tokens: list[int] = []
    while len(tokens) < length:
        position = len(tokens)
        context = [tokens[-1] if tokens else FIRST_CONTEXT]
        for j in range(k):
            q = models.draft[context[-1]]
            u = philox.draft_uniform(seed, position, j)
            context.append(min(int(np.searchsorted(np.cumsum(q), u, side="right")), len(q) - 1))
        drafts = context[1:]
        decision = method(_stage(models, targets, context, seed, position, accept_uniform))
        tokens += [*drafts[: decision.accepted], decision.final_token]
    return tokens[:length]


def _stage(
    models: Models, targets: list[TargetRow], context: list[int], seed: int, position: int, accept: AcceptUniform
) -> Stage:
    drafts = context[1:]

    def draft(j: int) -> DraftRow:
        return PointMass(drafts[j]) if models.point_mass else FullDraft(models.draft[context[j]])

    return Stage(
        drafts=drafts,
        target=lambda j: targets[context[j]],
        draft=draft,
        accept_uniform=lambda j: accept(seed, position, j),
        draw_uniform=lambda j: philox.draw_uniform(seed, position, j),
        margins=_NoMargins(),
    )


def chi_square(observed: Floats, expected: Floats) -> tuple[float, int]:
    """(chi-square, degrees of freedom); cells that expect fewer than 5 are counted as one."""
    small = expected < 5.0
    pooled = [(float(observed[small].sum()), float(expected[small].sum()))] if small.any() else []
    cells = [*zip(observed[~small], expected[~small], strict=True), *pooled]
    cells = [(o, e) for o, e in cells if e > 0.0 or o > 0.0]
    if any(e == 0.0 for _, e in cells):
        return math.inf, len(cells) - 1  # something without mass was emitted
    return sum((o - e) ** 2 / e for o, e in cells), len(cells) - 1


def excesses(models: Models, sequences: list[list[int]]) -> list[float]:
    """For each position, and each adjacent pair: chi-square against the target's law over its limit.

    The limit is df + 10 sqrt(2 df): the mean of a chi-square variable and ten of its standard deviations.
    """
    size, length = len(models.target), len(sequences[0])
    tokens = np.array(sequences)
    law = models.target[FIRST_CONTEXT]
    ratios: list[float] = []
    for i in range(length):
        counts = np.bincount(tokens[:, i], minlength=size).astype(np.float64)
        ratios.append(_ratio(counts, law * len(tokens)))
        if i + 1 < length:
            pairs = np.zeros((size, size))
            np.add.at(pairs, (tokens[:, i], tokens[:, i + 1]), 1.0)
            ratios.append(_ratio(pairs.ravel(), (law[:, None] * models.target).ravel() * len(tokens)))
            law = law @ models.target
    return ratios


def _ratio(observed: Floats, expected: Floats) -> float:
    statistic, df = chi_square(observed, expected)
    return statistic / (df + 10.0 * math.sqrt(2.0 * df)) if df else statistic
