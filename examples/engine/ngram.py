"""Interpolated n-gram language models whose logits are natural-log probabilities of the whole vocabulary.

Kneser-Ney smoothing in its interpolated form (Chen & Goodman 1998, "An Empirical Study of Smoothing Techniques for
Language Modeling", section 3): with h a context, h' the same without its oldest token, and c counts,

    p(w | h) = (c(h w) - D) / c(h)  [if h w was seen]  +  D * types(h) / c(h) * p(w | h'),

ending in the uniform distribution. The highest order counts occurrences, each lower one counts distinct left
neighbours. D is estimated per order as n1 / (n1 + 2 n2) from the n-grams seen once and twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.arrays import Floats, Ints, Logits


@dataclass(frozen=True)
class _Level:
    """What was seen after the contexts of one length, as compressed sparse rows.

    `contexts` [C] are the packed contexts, ascending. Row i owns entries offsets[i]:offsets[i + 1] of `successors` and
    `discounted` [E], which hold w and (c(h w) - D) / c(h); `backoff` [C] holds D * types(h) / c(h).
    """

    contexts: Ints
    offsets: Ints
    successors: Ints
    discounted: Floats
    backoff: Floats


class NgramModel:
    """A language model of a fixed order, immutable once trained."""

    def __init__(self, vocab_size: int, order: int, unigram: Floats, levels: Sequence[_Level]) -> None:
        self.vocab_size = vocab_size
        self.order = order
        self._unigram = unigram
        self._levels = tuple(levels)

    @classmethod
    def train(
        cls,
        token_ids: Sequence[int],
        vocab_size: int,
        order: int,
        *,
        largest_discounts: Sequence[float] = (),
        on_order: Callable[[], None] = lambda: None,
    ) -> "NgramModel":
        """Count and smooth `token_ids`, ids in [0, vocab_size), id 0 standing before the first of them.

        `largest_discounts[n - 1]` caps D of order n (1.0, no cap, where the list ends): less smoothing follows the
        training text in longer stretches. `on_order` is called after each of the `order` orders. Raises ValueError
        where `vocab_size` ** `order` does not fit in 63 bits, in which an n-gram is packed here.
        """
        if vocab_size**order >= 2**63:
            raise ValueError(f"order {order} over {vocab_size} words does not fit in 63 bits")
        grams, counts = np.unique(_packed_windows(token_ids, vocab_size, order), return_counts=True)
        levels: list[_Level] = []
        for n in range(order, 0, -1):
            if n < order:
                # Dropping the oldest token of the distinct longer n-grams leaves one entry per distinct left neighbour.
                grams, counts = np.unique(grams % vocab_size**n, return_counts=True)
            cap = largest_discounts[n - 1] if n <= len(largest_discounts) else 1.0
            levels.append(_level(grams, counts, vocab_size, cap))
            on_order()
        lowest = levels.pop()
        unigram = np.full(vocab_size, lowest.backoff[0] / vocab_size)
        unigram[lowest.successors] += lowest.discounted
        return cls(vocab_size, order, unigram, levels[::-1])

    def contexts(self, sequences: Sequence[Sequence[int]]) -> Ints:
        """[n, order - 1]: the last ids of each sequence, padded at the left with id 0."""
        width = self.order - 1
        contexts = np.zeros((len(sequences), width), np.int64)
        for row, sequence in zip(contexts, sequences, strict=True):
            last = sequence[max(len(sequence) - width, 0) :]
            row[width - len(last) :] = last
        return contexts

    def next_logits(self, contexts: Ints) -> Logits:
        """Log probabilities of the next token.

        `contexts` [n, at least order - 1] holds the ids before it, oldest first, padded at the left with 0; returns
        [n, vocab_size]. A row depends on its own context alone, bit for bit, whatever else is in the batch.
        """
        probabilities = np.tile(self._unigram, (len(contexts), 1))
        packed = np.zeros(len(contexts), np.int64)
        for n, level in enumerate(self._levels, start=2):
            packed += contexts[:, -(n - 1)] * self.vocab_size ** (n - 2)
            self._interpolate(probabilities, packed, level)
        return np.log(probabilities).astype(np.float32)

    @staticmethod
    def _interpolate(probabilities: Floats, packed: Ints, level: _Level) -> None:
        """Turn p(w | h') into p(w | h) in place, in the rows whose context was seen at this level."""
        found = np.searchsorted(level.contexts, packed)
        found[found == len(level.contexts)] = 0
        rows = np.flatnonzero(level.contexts[found] == packed)
        found = found[rows]
        probabilities[rows] *= level.backoff[found, None]
        first, lengths = level.offsets[found], np.diff(level.offsets)[found]
        # Entry numbers of all found rows, one after another: each row's range shifted from its place in the output.
        ends = np.cumsum(lengths)
        entries = np.arange(lengths.sum()) + np.repeat(first - (ends - lengths), lengths)
        probabilities[np.repeat(rows, lengths), level.successors[entries]] += level.discounted[entries]


def cross_entropy(model: NgramModel, token_ids: Sequence[int], rows_at_once: int = 512) -> float:
    """Mean of -log p over `token_ids`, in nats per token, id 0 standing before the first."""
    ids = np.asarray(token_ids, np.int64)
    contexts = _windows(token_ids, model.order)[:, :-1]
    total = 0.0
    for start in range(0, len(ids), rows_at_once):
        part = slice(start, start + rows_at_once)
        logits = model.next_logits(contexts[part])
        total -= float(np.take_along_axis(logits, ids[part, None], axis=1).sum(dtype=np.float64))
    return total / len(ids)


def _windows(token_ids: Sequence[int], width: int) -> Ints:
    """[len, width]: each token with the `width` - 1 before it, oldest first."""
    padded = np.concatenate([np.zeros(width - 1, np.int64), np.asarray(token_ids, np.int64)])
    return np.lib.stride_tricks.sliding_window_view(padded, width)


def _packed_windows(token_ids: Sequence[int], vocab_size: int, width: int) -> Ints:
    """[len]: the windows as numbers in base `vocab_size`, the newest token the lowest digit."""
    return _windows(token_ids, width) @ vocab_size ** np.arange(width - 1, -1, -1, dtype=np.int64)


def _level(grams: Ints, counts: Ints, vocab_size: int, largest_discount: float) -> _Level:
    """One level from its distinct packed n-grams, ascending, and their counts."""
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    # Below 1 and above 0 also for texts too small to estimate from, so that every token keeps a probability.
    discount = min(max(once / max(once + 2 * twice, 1), 0.1), 0.95, largest_discount)
    contexts, starts = np.unique(grams // vocab_size, return_index=True)
    offsets = np.append(starts, len(grams))
    types = np.diff(offsets)
    totals = np.add.reduceat(counts, starts)
    return _Level(
        contexts=contexts,
        offsets=offsets,
        successors=grams % vocab_size,
        discounted=(counts - discount) / np.repeat(totals, types),
        backoff=discount * types / totals,
    )
