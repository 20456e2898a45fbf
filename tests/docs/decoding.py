"""Many sequences decoded at once with standard or block verification, from one p and one q at every position."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.docs.philox import Floats, uniform

Ids = NDArray[np.int64]


def decode(method: str, p: Floats, q: Floats, *, k: int, seeds: int, length: int, with_s: bool) -> Ids:
    """[seeds, length] the tokens of seeds 0, 1, ... over as many steps as it takes; drafts are drawn with purpose 2.

    ``with_s`` false leaves the row's index out of the counter, which is the fault that is measured.
    """
    tokens = np.zeros((seeds, length + k + 1), dtype=np.int64)
    position = np.zeros(seeds, dtype=np.int64)
    while (active := np.flatnonzero(position < length)).size:
        start, seed = position[active], active.astype(np.uint64)
        rows = [(start + j).astype(np.uint64) for j in range(k + 1)]
        s = [j if with_s else 0 for j in range(k)]
        drafts = np.stack([_draw(q, uniform(seed, rows[j], 2, s[j])) for j in range(k)], axis=1)
        u = np.stack([uniform(seed, rows[j], 0, s[j]) for j in range(k)], axis=1)
        t, c = _block(p, q, drafts, u) if method == "block" else _standard(p, q, drafts, u)
        residual = np.maximum(c[:, None] * p - q, 0.0)
        masses = np.where((t == k)[:, None], p, residual)
        final = _draw(masses, uniform(seed, (start + t).astype(np.uint64), 1, 0))
        for j in range(k):
            stands = j < t
            tokens[active[stands], start[stands] + j] = drafts[stands, j]
        tokens[active, start + t] = final
        position[active] = start + t + 1
    return tokens[:, :length]


def chi_square(tokens: Ids, p: Floats) -> float:
    """Pearson's statistic of tokens [n], or of tuples [n, m] of independent ones, against p."""
    columns = tokens.reshape(len(tokens), -1)
    cell = np.zeros(len(tokens), dtype=np.int64)
    law = np.ones(1)
    for column in columns.T:
        cell = cell * len(p) + column
        law = np.outer(law, p).ravel()
    expected = len(tokens) * law
    return float(np.sum((np.bincount(cell, minlength=len(law)) - expected) ** 2 / expected))


def _draw(masses: Floats, u: Floats) -> Ids:
    """[n] by inverse CDF, from masses [V] or [n, V]."""
    prefix = np.cumsum(np.broadcast_to(masses, (len(u), masses.shape[-1])), axis=1)
    below = np.sum(prefix <= (u * prefix[:, -1])[:, None], axis=1)
    ids: Ids = np.minimum(below, masses.shape[-1] - 1)
    return ids


def _standard(p: Floats, q: Floats, drafts: Ids, u: Floats) -> tuple[Ids, Floats]:
    stands = np.cumprod(u * q[drafts] < p[drafts], axis=1)
    return stands.sum(axis=1), np.ones(len(drafts))


def _block(p: Floats, q: Floats, drafts: Ids, u: Floats) -> tuple[Ids, Floats]:
    n, k = drafts.shape
    t, c, at_t = np.zeros(n, dtype=np.int64), np.ones(n), np.ones(n)
    for i in range(1, k + 1):
        x = drafts[:, i - 1]
        c = np.minimum(1.0, c * p[x] / q[x])
        mass = np.maximum(c[:, None] * p - q, 0.0).sum(axis=1)
        rest = mass + 1.0 - c
        h = c if i == k else np.where(rest == 0.0, 1.0, mass / np.where(rest == 0.0, 1.0, rest))
        passes = u[:, i - 1] < h
        t, at_t = np.where(passes, i, t), np.where(passes, c, at_t)
    return t, at_t
