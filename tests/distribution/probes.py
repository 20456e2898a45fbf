"""Steps whose every decision is known beforehand. Each probe returns what went wrong; an empty list is a pass.

A law cannot see everything: a uniform taken from the wrong counter is still uniform. Here each decision is held between
two probabilities just beside its own uniform, so that one certain outcome is right and any other uniform shows.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sampler_kernels import SamplingParams
from tests.docs.philox import uniform
from tests.kernels.asking import Ask, answers, tokens_of

QUIET = SamplingParams(logprobs_modes=())
_SURE, _DECIDED, _OTHER = 2, 0, 1
_SIDE = 1e-5
"""How far the probability lies beside the uniform: 100 times what fp32 logits and sums leave unsure."""


def uniforms(backend: str, *, count: int = 4000) -> list[str]:
    """Every accept test and every draw uses the uniform of its own seed, position, purpose and row.

    Half of the requests accept row j iff u < p, p a hair above or below u; half draw at row j from such a p. The rows
    before j are sure. A foreign uniform decides otherwise in half of the cases, and so is missed once in 2^2000.
    """
    generator = np.random.default_rng(1)
    asks: list[Ask] = []
    expected: list[tuple[int, int, str]] = []
    while len(asks) < count:
        j, more = int(generator.integers(0, 5)), int(generator.integers(0, 3))
        seed = int(generator.integers(0, 2**64, dtype=np.uint64)) >> int(generator.choice([0, 40]))
        position = int(generator.integers(0, 2**63)) >> int(generator.choice([0, 20, 50]))
        draws = bool(generator.integers(0, 2))
        u = _uniform(seed, position + j, purpose=1 if draws else 0, s=0 if draws else j)
        below = bool(generator.integers(0, 2))
        p = u + _SIDE if below else u - _SIDE
        if not 2 * _SIDE < p < 1 - 2 * _SIDE:
            continue
        rows = [[0.0, 0.0, 1.0]] * j + [[p, 1 - p, 0.0]]
        ids = [_SURE] * j
        if not draws:
            rows += [[0.0, 0.0, 1.0]] * (more + 1)
            ids += [_DECIDED] + [_SURE] * more
        asks.append(Ask(target=_logits(rows), ids=ids, params=QUIET, seed=seed, position=position))
        expected.append((j, _DECIDED if below else _OTHER, f"{'draw' if draws else 'accept'} at row {j}"))
    found = tokens_of(answers(asks, backend))
    return [
        f"{what}, seed {ask.seed}, position {ask.position}: emitted {got}, right is {right} at index {j}"
        for ask, got, (j, right, what) in zip(asks, found, expected, strict=True)
        if len(got) <= j or got[j] != right
    ]


RARE = (8958351, 34277798, 18819844, 28454778, 11239121, 42946175, 34932639, 31494664, 45725350, 27283984)
"""Seeds whose accept uniform at position 0 is above 1 - 4e-7, from the first 60 million."""


def rare_rejections(backend: str) -> list[str]:
    """A point mass on a token of p = 1 - 1e-6 is rejected, and the rest is drawn as if it were all there is.

    A hundred other tokens hold 1.01e-8 each. Their sum is 8.5 steps of fp32 at 1: whoever takes it as the row's mass
    less the token's is off by 6 %, and lands on another of the hundred.
    """
    each = 8.5 * 2.0**-23 / 100
    row = torch.log(torch.tensor([1.0, *[each] * 100], dtype=torch.float64)).float()
    asks = [Ask(target=row.repeat(2, 1), ids=[0], params=QUIET, seed=seed) for seed in RARE]
    wrong = []
    for seed, got in zip(RARE, tokens_of(answers(asks, backend)), strict=True):
        assert _uniform(seed, 0, purpose=0, s=0) > 1 - 4e-7
        right = 1 + int(_uniform(seed, 0, purpose=1, s=0) * 100)
        if got != [right]:
            wrong.append(f"seed {seed}: emitted {got}, right is [{right}]")
    return wrong


def impossible_drafts(backend: str, *, count: int = 500) -> list[str]:
    """A draft token of p = 0 never stands, though q = 0 too and 0 <= 0; nor is it drawn again."""
    target, draft = _logits([[0.0, 0.5, 0.5], [0.0, 0.5, 0.5]]), _logits([[0.0, 0.5, 0.5]])
    asks = [Ask(target=target, ids=[0], draft=draft, params=QUIET, seed=seed) for seed in range(count)]
    found = tokens_of(answers(asks, backend))
    return [f"seed {seed}: emitted {got}" for seed, got in enumerate(found) if len(got) != 1 or 0 in got]


def ties(backend: str) -> list[str]:
    """Of equal logits the lowest id is the argmax: within a group, across groups, across tiles."""
    params = SamplingParams(temperature=0, logprobs_modes=())
    wrong = []
    for first, second in ((0, 1), (3, 100), (5, 300), (127, 128), (4095, 4096), (17, 8000)):
        rows = torch.zeros(2, 8200)
        rows[:, [first, second]] = 2.5
        low, high = Ask(target=rows, ids=[first], params=params), Ask(target=rows, ids=[second], params=params)
        got = tokens_of(answers([low, high], backend))
        if got != [[first, first], [first]]:
            wrong.append(f"logits equal at {first} and {second}: drafts of either give {got}")
    return wrong


def _uniform(seed: int, position: int, *, purpose: int, s: int) -> float:
    return float(uniform(np.array([seed], np.uint64), np.array([position], np.uint64), purpose, s)[0])


def _logits(rows: list[list[float]]) -> Tensor:
    return torch.log(torch.tensor(rows, dtype=torch.float64)).float()
