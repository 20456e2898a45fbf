"""From a client's target row to p: mask, bias, min-tokens, penalties, bad words, temperature, min-p, top-k, top-p."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tests.oracle.margins import Margins
from tests.oracle.request import Flags, Floats, Logits, Params, Request

EDGE_SHIFT = 1e-5
"""Moves the min-p and top-p thresholds off the natural ties."""


@dataclass(frozen=True)
class ProcessedRow:
    """One target row after processing.

    adjusted [V]: fp32 logits before temperature, -inf where masked; order and ties are taken on these.
    kept [V]: what the masks and filters left. temperature: the divisor (1 at temperature 0). p [V]: the distribution.
    """

    adjusted: Logits
    kept: Flags
    temperature: float
    p: Floats

    @property
    def order_key(self) -> Logits:
        """[V] adjusted logits with -inf for what the filters dropped."""
        return np.where(self.kept, self.adjusted, np.float32(-np.inf))

    @property
    def logits(self) -> Floats:
        """[V] processed logits: divided by the temperature, -inf for what is not kept."""
        return self.order_key.astype(np.float64) / self.temperature


def log_sum_exp(logits: Logits, temperature: float) -> float:
    """ln(sum(exp(x / temperature))) in fp64."""
    x = logits.astype(np.float64)
    top = float(np.max(x))
    return top / temperature + math.log(float(np.sum(np.exp((x - top) / temperature))))


def softmax(logits: Logits, temperature: float) -> Floats:
    """exp((x - max) / temperature), normalised, in fp64; a -inf logit has no mass."""
    x = logits.astype(np.float64)
    weights = np.exp((x - np.max(x)) / temperature)
    return np.asarray(weights / np.sum(weights), dtype=np.float64)


def order(logits: Logits) -> np.ndarray:
    """Ids by descending logit, the lowest id first among equals."""
    return np.argsort(-logits.astype(np.float64), kind="stable")


def process_row(request: Request, row: int, margins: Margins) -> ProcessedRow:
    """Process target row `row`; the caller has checked that it can be (see rows.py for bad rows)."""
    adjusted = adjust(request, row)
    params = request.params
    if params.temperature == 0.0:
        kept = adjusted > -np.inf
        return ProcessedRow(adjusted, kept, 1.0, softmax(adjusted, 1.0))
    kept = filter_row(adjusted, params, row, margins)
    key = np.where(kept, adjusted, np.float32(-np.inf))
    return ProcessedRow(adjusted, kept, params.temperature, softmax(key, params.temperature))


def adjust(request: Request, row: int) -> Logits:
    """[V] the row in fp32 after everything that comes before temperature."""
    x: Logits = request.target_logits[row].copy()
    _mask_not_allowed(x, request.params, row)
    with np.errstate(over="ignore"):
        for token_id, bias in request.params.logit_bias.items():
            x[token_id] += np.float32(bias)
    if request.output_length + row < request.params.min_tokens:
        x[list(request.params.stop_token_ids)] = -np.inf
    drafted = list(request.draft_token_ids[:row])
    with np.errstate(over="ignore", invalid="ignore"):
        _penalise(x, request.params, drafted)
    _mask_bad_words(x, request.params, drafted)
    return x


def _mask_not_allowed(x: Logits, params: Params, row: int) -> None:
    allowed = params.allowed_token_ids
    if params.allowed_token_ids_by_row is not None:
        allowed = params.allowed_token_ids_by_row[row]
    if allowed is not None:
        forbidden = np.ones(len(x), dtype=np.bool_)
        forbidden[list(allowed)] = False
        x[forbidden] = -np.inf


def _penalise(x: Logits, params: Params, drafted: list[int]) -> None:
    """Repetition counts the prompt; frequency and presence do not. Ids outside [0, V) match nothing."""
    generated = Counter([*params.output_token_ids, *drafted])
    seen = {*params.prompt_token_ids, *generated}
    repetition = np.float32(params.repetition_penalty)
    frequency, presence = np.float32(params.frequency_penalty), np.float32(params.presence_penalty)
    for token_id in seen:
        if 0 <= token_id < len(x):
            x[token_id] = x[token_id] / repetition if x[token_id] > 0 else x[token_id] * repetition
    for token_id, count in generated.items():
        if 0 <= token_id < len(x):
            x[token_id] = x[token_id] - (frequency * np.float32(count) + presence)


def _mask_bad_words(x: Logits, params: Params, drafted: list[int]) -> None:
    text = [*params.prompt_token_ids, *params.output_token_ids, *drafted]
    for word in params.bad_words:
        prefix, last = list(word[:-1]), word[-1]
        if len(prefix) <= len(text) and text[len(text) - len(prefix) :] == prefix:
            x[last] = -np.inf


def filter_row(adjusted: Logits, params: Params, row: int, margins: Margins) -> Flags:
    """[V] what min-p, then top-k, then top-p keep; each works on the distribution that the one before left."""
    kept = adjusted > -np.inf
    kept = _min_p(adjusted, kept, params, row, margins)
    kept = _top_k(adjusted, kept, params.top_k)
    return _top_p(adjusted, kept, params, row, margins)


def _min_p(adjusted: Logits, kept: Flags, params: Params, row: int, margins: Margins) -> Flags:
    if params.min_p == 0.0:
        return kept
    below_max = adjusted.astype(np.float64) - float(np.max(adjusted))
    threshold = math.log(params.min_p) - EDGE_SHIFT
    contested = below_max[kept & (below_max < 0.0)]
    if len(contested):
        # In units of log probability, as the shift is: at a small temperature logits themselves lie close together.
        margins.add("min_p", row, float(np.min(np.abs(contested / params.temperature - threshold))))
    return kept & (below_max >= params.temperature * threshold)


def _top_k(adjusted: Logits, kept: Flags, top_k: int) -> Flags:
    if top_k == 0:
        return kept
    ids = order(np.where(kept, adjusted, np.float32(-np.inf)))[: min(top_k, int(np.sum(kept)))]
    chosen = np.zeros_like(kept)
    chosen[ids] = True
    return chosen


def _top_p(adjusted: Logits, kept: Flags, params: Params, row: int, margins: Margins) -> Flags:
    if params.top_p == 1.0:
        return kept
    left = np.where(kept, adjusted, np.float32(-np.inf))
    ids = order(left)[: int(np.sum(kept))]
    mass = softmax(left, params.temperature)[ids]
    before = np.concatenate(([0.0], np.cumsum(mass)[:-1]))
    threshold = params.top_p - EDGE_SHIFT
    stays = before < threshold
    stays[0] = True
    if len(ids) > 1:
        # The first token stays whatever the threshold, so it decides nothing.
        margins.add("top_p", row, float(np.min(np.abs(before[1:] - threshold))))
    chosen = np.zeros_like(kept)
    chosen[ids[stays]] = True
    return chosen
