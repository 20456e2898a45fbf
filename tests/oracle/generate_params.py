"""Random sampling parameters that bite on the request they are made for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.oracle.request import LOGPROBS_MODES, Json, Logits


def processing_params(
    rng: np.random.Generator, features: frozenset[str], target: Logits, draft_ids: Sequence[int]
) -> dict[str, Json]:
    """Histories, masks, biases, penalties, bad words and filters, as far as `features` allows them."""
    vocab_size, rows = target.shape[1], target.shape[0]

    def has(feature: str, probability: float) -> bool:
        return rng.random() < probability and feature in features

    made: dict[str, Json] = {}
    penalties, bad_words = has("penalties", 0.4), has("bad_words", 0.35)
    if penalties or bad_words:
        made |= _histories(rng, vocab_size, draft_ids)
    if penalties:
        made |= _penalties(rng)
    if bad_words:
        made["bad_words"] = _bad_words(rng, target, [*made["prompt_token_ids"], *made["output_token_ids"]], draft_ids)
    if has("mask", 0.3):
        if rng.random() < 0.5:
            made["allowed_token_ids"] = _allowed(rng, vocab_size)
        else:
            made["allowed_token_ids_by_row"] = [_allowed(rng, vocab_size) for _ in range(rows)]
    if has("bias", 0.3):
        ids = rng.choice(vocab_size, size=min(vocab_size, 4), replace=False)
        biases = rng.choice([-2.0, -0.5, 0.5, 1.0, float(rng.normal() * 3)], size=len(ids))
        made["logit_bias"] = {str(int(i)): float(b) for i, b in zip(ids, biases, strict=True)}
    if has("min_tokens", 0.25):
        made["min_tokens"] = int(rng.integers(0, 8))
        if rng.random() < 0.5 or "output_token_ids" not in made:
            made["num_output_tokens"] = int(rng.integers(0, 8))
    if has("min_p", 0.3):
        made["min_p"] = float(rng.choice([0.01, 0.1, 0.25, 0.5, 1.0, float(rng.random())]))
    if has("top_k", 0.35):
        made["top_k"] = int(rng.choice([1, 2, 3, 5, 20, vocab_size, vocab_size + 3]))
    if has("top_p", 0.4):
        made["top_p"] = float(rng.choice([0.1, 0.5, 0.75, 0.8, 0.9, 0.95, 0.999, 1e-6, float(rng.uniform(0.05, 1.0))]))
    return made


def logprobs_params(rng: np.random.Generator, features: frozenset[str], vocab_size: int) -> dict[str, Json]:
    """Modes, ranks, top n and chosen ids."""
    made: dict[str, Json] = {}
    if "logprobs_modes" in features and rng.random() < 0.7:
        made["logprobs_modes"] = [m for m in LOGPROBS_MODES if rng.random() < 0.5]
    if "ranks" in features and rng.random() < 0.3:
        made["ranks"] = bool(rng.random() < 0.5)
    if "top_logprobs" in features and rng.random() < 0.6:
        made["top_logprobs"] = int(rng.choice([0, 1, 2, 3, 5, 20, 256]))
    if "chosen" in features and rng.random() < 0.3:
        made["logprob_token_ids"] = [int(i) for i in rng.integers(0, vocab_size, int(rng.integers(1, 5)))]
    return made


def _histories(rng: np.random.Generator, vocab_size: int, draft_ids: Sequence[int]) -> dict[str, Json]:
    """Ids from a small set, placeholders of other modalities among them, and stretches of the draft repeated."""
    common = [int(i) for i in rng.integers(0, vocab_size, 5)]
    drafted = [i for i in draft_ids if i >= 0] or common

    def text(length: int) -> list[int]:
        ids: list[int] = []
        while len(ids) < length:
            if rng.random() < 0.4:
                start = int(rng.integers(0, len(drafted)))
                ids += drafted[start : start + 3]
            else:
                ids.append(int(rng.choice(common)))
        if ids and rng.random() < 0.2:
            ids[int(rng.integers(0, len(ids)))] = int(rng.choice([-1, -7, vocab_size, vocab_size + 5]))
        return ids[:length]

    return {"prompt_token_ids": text(int(rng.integers(0, 8))), "output_token_ids": text(int(rng.integers(0, 8)))}


def _penalties(rng: np.random.Generator) -> dict[str, Json]:
    made: dict[str, Json] = {}
    if rng.random() < 0.6:
        made["repetition_penalty"] = float(rng.choice([0.5, 0.8, 1.1, 1.3, 2.0]))
    if rng.random() < 0.6:
        made["frequency_penalty"] = float(rng.choice([-0.5, 0.3, 0.5, 1.0]))
    if rng.random() < 0.6:
        made["presence_penalty"] = float(rng.choice([-0.5, 0.4, 0.5, 1.5]))
    return made


def _bad_words(
    rng: np.random.Generator, target: Logits, history: Sequence[int], draft_ids: Sequence[int]
) -> list[list[int]]:
    """Words whose prefix is the context's end at some row, and whose last id is likely there; a few at random."""
    vocab_size = target.shape[1]
    words: list[list[int]] = []
    for _ in range(int(rng.integers(1, 5))):
        row = int(rng.integers(0, len(target)))
        context = [*history, *draft_ids[:row]]
        length = int(rng.integers(0, min(4, len(context)) + 1))
        prefix = context[len(context) - length :]
        likely = draft_ids[row] if row < len(draft_ids) and rng.random() < 0.6 else int(np.argmax(target[row]))
        word = [*prefix, likely]
        if all(0 <= i < vocab_size for i in word) and (length > 0 or vocab_size > 2):
            words.append([int(i) for i in word])
    words.append([int(i) for i in rng.integers(0, vocab_size, 2)])
    return words


def _allowed(rng: np.random.Generator, vocab_size: int) -> list[int]:
    keep = np.flatnonzero(rng.random(vocab_size) < 0.7)
    return [int(i) for i in keep] if len(keep) else [int(rng.integers(0, vocab_size))]
