"""V = 200,000 with a head 18 or 22 logits above: what is drawn from the tail follows the tail's law.

The tail holds 0.3 % or 0.006 % of the mass, so only seeds are run whose uniforms lead there: by rejection of a draft
token on the head, or by a draw that falls beside it. Among these the draw's uniform is still uniform over the tail.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sampler_kernels import SamplingParams
from tests.backends import BACKENDS
from tests.distribution.chi_square import fit
from tests.docs.philox import uniform
from tests.kernels.asking import Ask, answers, tokens_of

pytestmark = [pytest.mark.distribution, pytest.mark.parametrize("backend", BACKENDS)]

VOCAB, HEAD = 200_000, 123_456
CELLS = 16
SEEDS = 1280
"""80 a cell: a sixteenth of the tail that is never drawn adds 80 to a statistic of mean 15 and limit 70."""
_AT_ONCE = 32


def _row(above: float) -> torch.Tensor:
    """A tail of normal logits of which every third is missing, and the head ``above`` their level."""
    tail = torch.randn(VOCAB, generator=torch.Generator().manual_seed(21)) * 0.5
    tail[::3] = -torch.inf
    tail[HEAD] = above
    return tail


def _seeds(purpose: int, low: float, high: float) -> list[int]:
    """Seeds whose uniform at position 0 lies outside [low, high]."""
    found: list[int] = []
    first, chunk = 0, 1 << 20
    while len(found) < SEEDS:
        seeds = np.arange(first, first + chunk, dtype=np.uint64)
        u = uniform(seeds, np.zeros(chunk, np.uint64), purpose, 0)
        found += seeds[(u < low) | (u > high)].tolist()
        first += chunk
    return found[:SEEDS]


@pytest.mark.parametrize("above", [18.0, 22.0])
@pytest.mark.parametrize("drafted", [True, False], ids=["rejected head", "drawn beside the head"])
def test_the_tail(above: float, backend: str, *, drafted: bool) -> None:
    row = _row(above)
    p = torch.softmax(row.double(), 0).numpy()
    before = p[:HEAD].sum()
    # Well past the edge, on the tail's side, so that rounding of the head's mass does not decide.
    edge = (1 - p[HEAD]) * 0.01
    seeds = _seeds(0, 0.0, p[HEAD] + edge) if drafted else _seeds(1, before - edge, before + p[HEAD] + edge)
    law = p.copy()
    law[HEAD] = 0
    if not drafted:  # the tail but for what the margin leaves out, right beside the head
        prefix = np.cumsum(p)
        law[(prefix > before - edge) & (prefix < before + p[HEAD] + edge)] = 0
    tokens: list[int] = []
    rows = row.repeat(2 if drafted else 1, 1)
    params = SamplingParams(logprobs_modes=())
    for first in range(0, SEEDS, _AT_ONCE):
        part = seeds[first : first + _AT_ONCE]
        asks = [Ask(target=rows, ids=[HEAD] if drafted else [], params=params, seed=seed) for seed in part]
        tokens += [one[0] for one in tokens_of(answers(asks, backend)) if len(one) == 1]
    assert len(tokens) == SEEDS, "every draft token was rejected"
    assert HEAD not in tokens
    assert not [token for token in tokens if p[token] == 0], "no id without mass"
    cell = np.arange(VOCAB) * CELLS // VOCAB
    counts = np.bincount(cell[tokens], minlength=CELLS)
    found = fit(f"head {above} above", counts, np.bincount(cell, law / law.sum(), CELLS).astype(np.float64))
    assert found.holds, str(found)
