import math

import numpy as np
import pytest

from engine.corpus import Corpus
from engine.models import TRAINING_PARTS, Models, train
from engine.ngram import NgramModel, cross_entropy


def test_every_row_is_a_distribution_over_the_whole_vocabulary(corpus: Corpus, models: Models) -> None:
    rng = np.random.default_rng(1)
    seen = np.lib.stride_tricks.sliding_window_view(np.array(corpus.training_ids), 3)[rng.integers(0, 40_000, 50)]
    unseen = rng.integers(0, len(corpus.vocabulary), (50, 3))
    for model in (models.target, models.draft):
        logits = model.next_logits(np.concatenate([seen, unseen]))
        assert logits.shape == (100, len(corpus.vocabulary))
        assert logits.dtype == np.float32
        assert np.isfinite(logits).all()
        # Each log probability is rounded to float32: a relative error of at most |x| * 2^-24, |x| below 20 here.
        np.testing.assert_allclose(np.exp(logits.astype(np.float64)).sum(axis=1), 1.0, atol=20 * 2.0**-24)


def test_the_target_knows_unseen_text_better_than_the_draft(corpus: Corpus, models: Models) -> None:
    assert models.target_nats < models.draft_nats < math.log(len(corpus.vocabulary))


def test_a_row_does_not_depend_on_its_batch(corpus: Corpus, models: Models) -> None:
    contexts = models.target.contexts([corpus.held_out_ids[:i] for i in range(41)])
    together = models.target.next_logits(contexts)
    for i in (0, 1, 7, 40):
        assert models.target.next_logits(contexts[i : i + 1]).tobytes() == together[i].tobytes()


def test_a_small_text_by_hand() -> None:
    """Text 1 2 1 1, order 2, D = 0.5 for both orders, worked out from the formula in the module."""
    model = NgramModel.train([1, 2, 1, 1], 3, 2, largest_discounts=(0.5, 0.5))
    # Distinct pairs: 0 1, 1 2, 2 1, 1 1; so 1 has three left neighbours and 2 has one.
    unigram = np.array([0.0, 2.5, 0.5]) / 4 + 0.5 * 2 / 4 / 3
    after_1 = np.array([0.0, 0.5, 0.5]) / 2 + 0.5 * 2 / 2 * unigram
    after_2 = np.array([0.0, 0.5, 0.0]) / 1 + 0.5 * 1 / 1 * unigram
    np.testing.assert_allclose(np.exp(model.next_logits(np.array([[1], [2]]))), [after_1, after_2], rtol=1e-6)


def test_an_unseen_context_falls_back_to_the_shorter_one() -> None:
    model = NgramModel.train([1, 2, 3, 1, 2, 3], 5, 3)
    assert np.array_equal(model.next_logits(np.array([[4, 2]])), model.next_logits(np.array([[2, 2]])))
    assert not np.array_equal(model.next_logits(np.array([[1, 2]])), model.next_logits(np.array([[4, 2]])))


def test_cross_entropy_is_the_mean_of_minus_log_p() -> None:
    text = [1, 2, 3, 1, 2, 3, 4]
    model = NgramModel.train(text, 5, 3)
    rows = model.next_logits(model.contexts([text[:i] for i in range(len(text))]))
    by_hand = -np.mean([row[token] for row, token in zip(rows, text, strict=True)])
    assert cross_entropy(model, text, rows_at_once=3) == pytest.approx(by_hand, rel=1e-6)


def test_contexts_are_padded_at_the_left() -> None:
    model = NgramModel.train([1, 2, 1], 3, 3)
    assert model.contexts([[], [1], [1, 2], [2, 1, 2]]).tolist() == [[0, 0], [0, 1], [1, 2], [1, 2]]


def test_an_order_that_cannot_be_packed_is_refused() -> None:
    with pytest.raises(ValueError, match="63 bits"):
        NgramModel.train([1, 2], 10_000, 5)


def test_training_reports_its_progress(corpus: Corpus) -> None:
    parts: list[None] = []
    train(corpus, lambda: parts.append(None))
    assert len(parts) == TRAINING_PARTS
