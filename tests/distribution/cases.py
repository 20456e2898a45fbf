"""What the laws are tested on: small Markov chains as target and draft, one row of a table for each.

A chain's row of logits depends on the token before it, through ``token % classes``. So the law of every position, and
of every pair of neighbours, is known exactly, while neighbouring rows of a step differ: a token judged or drawn at the
wrong row is seen. To test another method, filter or mask, add a row; what a filter leaves of a row is its ``process``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sampler_kernels import IdMap, Method, SamplingParams
from tests.distribution.chi_square import Floats
from tests.distribution.processed import filtered

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
        prompt: For rules that look at the context; None is a case whose law depends on the token before alone.
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
    prompt: Sequence[int] | None = None

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


def params(**wishes: Any) -> SamplingParams:  # noqa: ANN401  (of as many types as there are parameters)
    """QUIET with some wishes."""
    return replace(QUIET, **wishes)


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

_ROWS = Case(name="", target=chain(12, 16, 48, dropped=0.1), draft=chain(13, 16, 48), process=filtered)
"""So wide that any one filter leaves a dozen ids and more of each row."""
_FILTERS: dict[str, Any] = {"temperature": 1.2, "min_p": 0.02, "top_k": 26, "top_p": 0.93}
_SOME = (2, 3, 5, 7, 8, 11, 13, 16, 17, 19, 20, 23, 24, 27, 29, 31, 34, 37, 41, 43)
_ALL = replace(_ROWS, name="all filters", params=params(**_FILTERS))

PROCESSED_CASES = (
    _ALL,
    replace(_ROWS, name="min-p", params=params(min_p=0.15, temperature=1.6)),
    replace(_ROWS, name="top-k", params=params(top_k=18)),
    replace(_ROWS, name="top-k over ties", target=_ROWS.target.round(), params=params(top_k=20)),
    replace(_ROWS, name="top-p", params=params(top_p=0.85)),
    replace(_ROWS, name="top-k, top-p", params=params(top_k=22, top_p=0.9)),
    replace(_ROWS, name="allowed ids", params=params(allowed_token_ids=_SOME)),
    replace(
        _ROWS, name="bias, temperature 0.7", params=params(temperature=0.7, logit_bias={3: 2.0, 8: 1.5, 20: -4.0})
    ),
    replace(_ALL, name="all filters, fp16", target=_ROWS.target.to(F16), draft=_ROWS.draft.to(F16)),
    replace(_ALL, name="all filters, bf16", target=_ROWS.target.to(BF16), draft=_ROWS.draft.to(BF16)),
    replace(_ALL, name="all filters, point mass", sends_draft=False),
    replace(_ALL, name="all filters, id map", draft=chain(14, 16, 15), id_map=IdMap(torch.tensor(_SOME[:15]), 48)),
    replace(_ALL, name="all filters, block", params=params(method=Method.BLOCK, **_FILTERS)),
    replace(_ALL, name="all filters, block, bf16 draft", draft=_ROWS.draft.to(BF16),
            params=params(method=Method.BLOCK, **_FILTERS)),
    replace(_ALL, name="all filters, block, point mass", sends_draft=False,
            params=params(method=Method.BLOCK, **_FILTERS)),
    replace(_ALL, name="all filters, block, id map", draft=chain(14, 16, 15),
            id_map=IdMap(torch.tensor(_SOME[:15]), 48), params=params(method=Method.BLOCK, **_FILTERS)),
    replace(_ALL, name="all filters, strict", params=params(method=Method.STRICT, **_FILTERS)),
    replace(_ALL, name="all filters, strict, point mass", sends_draft=False,
            params=params(method=Method.STRICT, **_FILTERS)),
    replace(_ROWS, name="allowed ids, block", params=params(method=Method.BLOCK, allowed_token_ids=_SOME)),
    replace(_ROWS, name="block, ragged", ragged=True, params=params(method=Method.BLOCK)),
    replace(_ROWS, name="block, padded with -1", ragged=True, padded=True, params=params(method=Method.BLOCK)),
)  # fmt: skip
"""Methods, drafts and dtypes over processed rows."""

WIDE_PROCESSED_CASES = (
    replace(_WIDE, name="wide, all filters", process=filtered,
            params=params(min_p=0.001, top_k=900, top_p=0.97)),
    replace(_WIDE, name="wide, all filters, block", process=filtered,
            params=params(method=Method.BLOCK, min_p=0.001, top_k=900, top_p=0.97)),
    replace(_WIDE, name="three tiles, top-p", target=chain(10, 8, 8500, dropped=0.3), draft=chain(11, 8, 8500),
            process=filtered, params=params(top_p=0.9)),
)  # fmt: skip
"""One tile and three, where filters search in another way."""

_CONTEXT = Case(name="", target=chain(15, 16, 20), draft=chain(16, 16, 20), prompt=(3, 11))
_PENALTIES: dict[str, Any] = {"repetition_penalty": 1.4, "frequency_penalty": 0.6, "presence_penalty": 0.5}
_WORDS = params(bad_words=[[3, 11, 4], [11, 6], [4, 4], [1, 2], [2, 9, 5], [7, 0], [0, 7], [13]])

CONTEXT_CASES = tuple(
    replace(_CONTEXT, name=f"{what} in the window{suffix}", params=replace(wishes, method=method), sends_draft=sends)
    for what, wishes in (("penalties", params(**_PENALTIES)), ("bad words", _WORDS))
    for suffix, method, sends in (
        ("", Method.STANDARD, True),
        (", point mass", Method.STANDARD, False),
        (", block", Method.BLOCK, True),
        (", strict", Method.STRICT, True),
    )
)
"""Rows depend on all tokens before them, those drafted in the same step included."""

CASES = {
    case.name: case
    for case in (
        *NARROW_CASES, *WIDE_CASES, OPPOSITE, *PROCESSED_CASES, *WIDE_PROCESSED_CASES, *CONTEXT_CASES
    )
}  # fmt: skip
