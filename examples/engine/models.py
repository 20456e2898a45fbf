"""The two language models of the demo: a strong one that decides and a weak one that drafts."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from engine.corpus import Corpus
from engine.ngram import NgramModel, cross_entropy

TARGET_ORDER = 4
DRAFT_ORDER = 3

DRAFT_SHARE = 0.8
"""The part of the training text that the draft model sees: besides its order, what makes it the weaker one."""

LARGEST_DISCOUNTS = (1.0, 1.0, 0.7, 0.5)
"""Caps for both models. What the counts say for orders 3 and 4 is above 0.8, which is best for text never seen (by some
0.04 nats a token); these follow the training text in longer stretches, and sentences hold together."""

TRAINING_PARTS = TARGET_ORDER + DRAFT_ORDER + 2
"""How often `train` reports progress: once for each order, and once for each model measured."""


@dataclass(frozen=True)
class Models:
    """Trained models, their cross-entropies on held-out text in nats per token, and the time that it all took."""

    target: NgramModel
    draft: NgramModel
    target_nats: float
    draft_nats: float
    seconds: float


def train(corpus: Corpus, on_part: Callable[[], None] = lambda: None) -> Models:
    """Train and measure both; `on_part` is called `TRAINING_PARTS` times on the way."""
    started = perf_counter()
    vocab_size = len(corpus.vocabulary)
    target = NgramModel.train(
        corpus.training_ids, vocab_size, TARGET_ORDER, largest_discounts=LARGEST_DISCOUNTS, on_order=on_part
    )
    draft = NgramModel.train(
        corpus.training_ids[: int(DRAFT_SHARE * len(corpus.training_ids))],
        vocab_size,
        DRAFT_ORDER,
        largest_discounts=LARGEST_DISCOUNTS,
        on_order=on_part,
    )
    target_nats = cross_entropy(target, corpus.held_out_ids)
    on_part()
    draft_nats = cross_entropy(draft, corpus.held_out_ids)
    on_part()
    return Models(target, draft, target_nats, draft_nats, perf_counter() - started)
