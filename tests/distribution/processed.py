"""What processing leaves of rows whose law is known, in fp64 and with whole sorts: written for the laws alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from sampler_kernels import SamplingParams
from tests.distribution.chi_square import Floats

EDGE = 1e-5
"""How far the contract shifts the thresholds of min-p, in logarithms, and of top-p."""


def filtered(logits: Floats, params: SamplingParams) -> Floats:
    """[C, V] p of each row after masks, biases, temperature, min-p, top-k and top-p, in this order."""
    x = logits.copy()
    if params.allowed_token_ids is not None:
        x[:, np.setdiff1d(np.arange(x.shape[1]), params.allowed_token_ids)] = -np.inf
    for token, bias in params.logit_bias.items():
        x[:, token] += bias
    return np.stack([_filtered_row(row, params) for row in x])


def in_context(row: Floats, prompt: Sequence[int], context: Sequence[int], params: SamplingParams) -> Floats:
    """[V] p of one row after penalties and bad words, and then all that :func:`filtered` does.

    Args:
        row: [V] logits.
        prompt: What repetition and bad words see beside the context.
        context: Everything emitted before the row's token.
        params: Of the request.
    """
    x, counts = row.copy(), Counter(context)
    for token in {*prompt, *context}:
        x[token] = x[token] / params.repetition_penalty if x[token] > 0 else x[token] * params.repetition_penalty
    for token, count in counts.items():
        x[token] -= params.frequency_penalty * count + params.presence_penalty
    text = [*prompt, *context]
    for word in params.bad_words:
        begin = list(word[:-1])
        if text[len(text) - len(begin) :] == begin:
            x[word[-1]] = -np.inf
    law: Floats = filtered(x[None], params)[0]
    return law


def _filtered_row(row: Floats, params: SamplingParams) -> Floats:
    order = np.lexsort((np.arange(len(row)), -row))
    z = (row - row.max()) / params.temperature
    with np.errstate(divide="ignore"):
        order = order[z[order] >= np.log(params.min_p) - EDGE]
    order = order[np.isfinite(row[order])]
    if params.top_k:
        order = order[: params.top_k]
    masses = np.exp(z[order])
    if params.top_p < 1:
        before = (np.cumsum(masses) - masses) / masses.sum()
        kept = before < params.top_p - EDGE
        kept[0] = True
        order, masses = order[kept], masses[kept]
    law = np.zeros(len(row))
    law[order] = masses / masses.sum()
    return law
