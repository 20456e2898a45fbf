"""What the laws are tested on: small Markov chains as target and draft, one row of a table for each.

A chain's row of logits depends on the token before it, through ``token % classes``. So the law of every position, and
of every pair of neighbours, is known exactly, while neighbouring rows of a step differ: a token judged or drawn at the
wrong row is seen. To test another method, filter or mask, add a row; what a filter leaves of a row is its ``process``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sampler_kernels import IdMap, Method, SamplingParams
from tests.distribution.chi_square import Floats

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


def tempered(logits: Floats, params: SamplingParams) -> Floats:
    """[C, V] the softmax of each row at the temperature: what a row comes to where nothing else processes it."""
    return softmax(logits, params.temperature)


def softmax(logits: Floats, temperature: float) -> Floats:
    """Row by row, in fp64."""
    masses = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature)
    law: Floats = masses / masses.sum(axis=1, keepdims=True)
    return law


QUIET = SamplingParams(logprobs_modes=())
"""The defaults, without logprobs, which the laws do not look at."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One target, one draft, one way to verify.

    Attributes:
        name: For the test's name, and for mutants to say what must catch them.
        target: [C, V] logits of the target after a token of each class.
        draft: [C, V_d] logits that draft tokens are drawn from.
        sends_draft: Whether draft logits are part of the step; if not, any way to choose drafts must do.
        id_map: For a reduced draft vocabulary.
        params: Of every request.
        k: The most draft tokens of a step.
        ragged: Draft lengths vary from 0 to k, by seed and position, never by what is drawn.
        padded: Slots up to k are filled up with -1 instead.
        process: Raw target logits [C, V] -> p [C, V].
        cells: Neighbours are counted by ``id % cells``; singles always by id.
    """

    name: str
    target: Tensor
    draft: Tensor
    sends_draft: bool = True
    id_map: IdMap | None = None
    params: SamplingParams = QUIET
    k: int = 3
    ragged: bool = False
    padded: bool = False
    process: Callable[[Floats, SamplingParams], Floats] = tempered
    cells: int = 16

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.target.shape[1]

    @property
    def classes(self) -> int:
        """C."""
        return self.target.shape[0]

    @property
    def p(self) -> Floats:
        """[C, V] the target's law after each class."""
        return self.process(self.target.double().numpy(), self.params)

    @property
    def q(self) -> Floats:
        """[C, V_d] what drafts are drawn from, by column. A point mass may stand on any token: take any law."""
        temperature = self.params.draft_temperature or self.params.temperature
        return softmax(self.draft.double().numpy(), temperature)

    def __str__(self) -> str:
        return self.name


def chain(seed: int, classes: int, width: int, *, spread: float = 1.5, dropped: float = 0.0) -> Tensor:
    """[classes, width] fp32 logits; a share of each row is -inf, its first id never."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(classes, width, generator=generator) * spread
    gone = torch.rand(classes, width, generator=generator) < dropped
    gone[:, 0] = False
    return logits.masked_fill(gone, -torch.inf)


def params(**wishes: float | Method | None) -> SamplingParams:
    """QUIET with some wishes."""
    return replace(QUIET, **wishes)  # type: ignore[arg-type]


NARROW = Case(name="fp32", target=chain(1, 16, 16, dropped=0.15), draft=chain(2, 16, 16))
"""Draft logits of the target's own vocabulary, of another law; some ids that the draft proposes have p = 0."""

_WIDE = Case(name="wide fp32", target=chain(3, 8, 4096, dropped=0.3), draft=chain(4, 8, 4096), cells=16)
_FEW = torch.tensor([14, 3, 9, 0, 7, 12, 1, 10, 5])

NARROW_CASES = (
    NARROW,
    replace(NARROW, name="fp16", target=NARROW.target.to(F16), draft=NARROW.draft.to(F16)),
    replace(NARROW, name="bf16", target=NARROW.target.to(BF16), draft=NARROW.draft.to(BF16)),
    replace(NARROW, name="bf16 target, fp32 draft", target=NARROW.target.to(BF16)),
    replace(NARROW, name="temperature 0.7", params=params(temperature=0.7)),
    replace(
        NARROW, name="temperature 0.8, draft temperature 0.5", params=params(temperature=0.8, draft_temperature=0.5)
    ),
    replace(NARROW, name="draft temperature 0.5", params=params(draft_temperature=0.5)),
    replace(NARROW, name="point mass", sends_draft=False),
    replace(NARROW, name="point mass by draft temperature 0", params=params(draft_temperature=0.0)),
    replace(NARROW, name="id map", draft=chain(5, 16, len(_FEW)), id_map=IdMap(_FEW, 16)),
    replace(NARROW, name="V_d above V", draft=chain(6, 16, 21)),
    replace(NARROW, name="V_d below V", draft=chain(7, 16, 10)),
    replace(NARROW, name="ragged", ragged=True),
    replace(NARROW, name="padded with -1", ragged=True, padded=True),
    replace(NARROW, name="block", params=params(method=Method.BLOCK)),
    replace(NARROW, name="strict", params=params(method=Method.STRICT)),
)
"""Decoded over several steps."""

OPPOSITE = Case(name="draft = -target", target=chain(8, 1, 16, spread=2.0), draft=-chain(8, 1, 16, spread=2.0), k=1)
"""As unlike as can be: nearly every first token is redrawn from the residual."""

WIDE_CASES = (
    _WIDE,
    replace(_WIDE, name="wide fp16", target=_WIDE.target.to(F16), draft=_WIDE.draft.to(F16)),
    replace(_WIDE, name="wide bf16", target=_WIDE.target.to(BF16), draft=_WIDE.draft.to(BF16)),
    replace(_WIDE, name="wide point mass", sends_draft=False),
    replace(
        _WIDE,
        name="wide id map",
        draft=chain(9, 8, 700),
        id_map=IdMap(torch.randperm(4096, generator=torch.Generator().manual_seed(9))[:700], 4096),
    ),
    replace(_WIDE, name="three tiles", target=chain(10, 8, 8500, dropped=0.3), draft=chain(11, 8, 8500)),
)
"""One tile of the vocabulary and three; fewer seeds, for a row costs 256 times as much."""

CASES = {case.name: case for case in (*NARROW_CASES, *WIDE_CASES, OPPOSITE)}
