"""Small steps to send."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sampler_client import SamplingParams, Step


def step(
    lengths: Sequence[int] = (2,), *, params: Sequence[SamplingParams] = (), seeded: bool = True, vocab_size: int = 4
) -> Step:
    """Flat logits and draft tokens 1, 1, ..."""
    rows = sum(lengths) + len(lengths)
    return Step(
        target_logits=np.zeros((rows, vocab_size), dtype=np.float32),
        draft_lengths=lengths,
        draft_token_ids=np.ones(sum(lengths), dtype=np.int64),
        params=params,
        params_index=range(len(params)) if len(params) == len(lengths) else None,
        seeds=range(len(lengths)) if seeded else None,
        positions=[7] * len(lengths),
    )
