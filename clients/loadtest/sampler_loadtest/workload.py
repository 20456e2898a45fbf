"""The steps of a load test: made from a seed before the first call, so that making them is not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from sampler_client import DraftBlock, Method, SamplingParams, Step

DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}

MOST_BYTES: Final = 128 << 20
"""Logits held at a time. The echo's messages hold them once more."""

_MOST_STEPS: Final = 16
_SPREAD: Final = 3.0
"""Standard deviation of target logits."""

_RELAXED_TOP_N: Final = 10
_RELAXED_MARGIN: Final = 1.0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a step looks like.

    Attributes:
        batch: Requests in a step, B.
        drafts: Draft tokens of each request, k.
        vocab_size: V, of target and draft.
        dtype: Of all logits, a key of ``DTYPES``.
        draft_logits: Whether draft logits are sent; else every draft is a point mass on its token.
        draft_noise: Standard deviation of what draft logits differ by from the target's; the more, the fewer tokens
            stand.
        method: How drafts are judged.
        temperature: Of target and draft.
        acceptance: For the synthetic method: the chance of every draft token to stand if those before it did.
        top_logprobs: Entries of each row to report.
        seed: Of everything random.
    """

    batch: int = 1
    drafts: int = 4
    vocab_size: int = 128_256
    dtype: str = "bfloat16"
    draft_logits: bool = True
    draft_noise: float = 0.5
    method: Method = Method.STANDARD
    temperature: float = 0.7
    acceptance: float = 0.7
    top_logprobs: int = 0
    seed: int = 0

    @property
    def logits_bytes(self) -> int:
        """Of the logits of one step."""
        rows = self.drafts + 1 + (self.drafts if self.draft_logits else 0)
        return self.batch * rows * self.vocab_size * DTYPES[self.dtype].itemsize

    def params(self) -> SamplingParams:
        """The one parameter set that all requests share."""
        synthetic, relaxed = self.method is Method.SYNTHETIC, self.method is Method.RELAXED
        return SamplingParams(
            method=self.method,
            temperature=self.temperature,
            top_logprobs=self.top_logprobs,
            synthetic_rates=(self.acceptance,) * self.drafts if synthetic else (),
            relaxed_top_n=_RELAXED_TOP_N if relaxed else None,
            relaxed_margin=_RELAXED_MARGIN if relaxed else None,
        )

    def steps(self) -> list[Step]:
        """Different steps, to be sent in turn: as many as fit into ``MOST_BYTES``, at most 16, at least 1."""
        params = self.params()
        count = min(max(MOST_BYTES // self.logits_bytes, 1), _MOST_STEPS)
        return [self._step(number, params) for number in range(count)]

    def _step(self, number: int, params: SamplingParams) -> Step:
        random = np.random.default_rng((self.seed, number))
        shape = (self.batch, self.drafts + 1, self.vocab_size)
        target = random.standard_normal(shape, dtype=np.float32) * np.float32(_SPREAD)
        noise = random.standard_normal((self.batch, self.drafts, self.vocab_size), dtype=np.float32)
        draft = (target[:, : self.drafts] + noise * np.float32(self.draft_noise)).reshape(-1, self.vocab_size)
        dtype = DTYPES[self.dtype]
        return Step(
            target_logits=target.reshape(-1, self.vocab_size).astype(dtype),
            draft_lengths=[self.drafts] * self.batch,
            draft_token_ids=_drawn(draft, self.temperature, random) if self.drafts else None,
            draft_blocks=[DraftBlock(draft.astype(dtype))] if self.draft_logits and self.drafts else [],
            params=[params],
            seeds=random.integers(0, 1 << 63, self.batch, dtype=np.uint64),
            positions=[number * (self.drafts + 1)] * self.batch,
        )


def _drawn(rows: NDArray[np.float32], temperature: float, random: np.random.Generator) -> NDArray[np.int32]:
    """[rows] an id from each row's softmax at a temperature; the largest at 0."""
    if temperature == 0:
        return np.asarray(rows.argmax(axis=1), dtype=np.int32)
    ids = np.empty(len(rows), dtype=np.int32)
    for place, row in enumerate(rows):
        mass = np.cumsum(np.exp((row - row.max()) / np.float32(temperature)), dtype=np.float64)
        ids[place] = min(int(np.searchsorted(mass, random.random() * mass[-1])), len(row) - 1)
    return ids
