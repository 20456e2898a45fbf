"""Proposing draft tokens with the small model."""

from collections.abc import Sequence

import numpy as np

from engine.arrays import Ints, Logits
from engine.ngram import NgramModel
from engine.randomness import draft_uniforms, draw
from engine.runs import Request


def propose(
    draft: NgramModel, requests: Sequence[Request], lengths: Ints, temperature: float
) -> tuple[list[list[int]], Logits]:
    """`lengths[r]` draft tokens for each request, and the logits they were drawn from, [sum lengths, V].

    The i-th token of every request is drawn in one batch, then the next ones after it.
    """
    drafts: list[list[int]] = [[] for _ in requests]
    logits = np.empty((int(lengths.sum()), draft.vocab_size), np.float32)
    first_row = np.cumsum(lengths) - lengths
    for i in range(int(lengths.max(initial=0))):
        active = [r for r, length in enumerate(lengths) if length > i]
        rows = draft.next_logits(draft.contexts([requests[r].token_ids + drafts[r] for r in active]))
        logits[first_row[active] + i] = rows
        uniforms = draft_uniforms(
            np.array([requests[r].seed for r in active], np.uint64),
            np.array([len(requests[r].token_ids) + i for r in active], np.uint64),
            np.full(len(active), i),
        )
        for r, token_id in zip(active, draw(rows, temperature, uniforms), strict=True):
            drafts[r].append(int(token_id))
    return drafts, logits
