import math

import numpy as np
import pytest

from engine.drafting import propose
from engine.models import Models
from engine.randomness import PURPOSE_DRAFT, draft_uniforms, draw, philox, softmax
from engine.runs import Request


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_its_published_answers(counter: list[int], key: list[int], words: list[int]) -> None:
    assert philox(np.array(counter, np.uint64), np.array(key, np.uint64)).tolist() == words


def test_a_draft_uniform_is_keyed_by_seed_and_counted_by_position_purpose_and_row() -> None:
    seed, position, row = 0x299F31D0_A4093822, 0x85A308D3_243F6A88, 3
    words = philox(
        np.array([0x243F6A88, 0x85A308D3, PURPOSE_DRAFT, row], np.uint64), np.array([0xA4093822, 0x299F31D0], np.uint64)
    ).tolist()
    expected = (((words[0] << 32 | words[1]) >> 12) + 0.5) / 2**52
    assert draft_uniforms(np.array([seed], np.uint64), np.array([position], np.uint64), np.array([row])) == expected


def test_uniforms_lie_inside_the_unit_interval_and_fill_it() -> None:
    u = draft_uniforms(np.arange(100_000, dtype=np.uint64), np.full(100_000, 7, np.uint64), np.zeros(100_000, np.int64))
    assert 0 < u.min() < 1e-3
    assert 1 - 1e-3 < u.max() < 1
    # The mean of n uniforms has standard deviation (12 n)^-1/2; ten of them allowed.
    assert abs(u.mean() - 0.5) < 10 * (12 * len(u)) ** -0.5


def test_a_draw_is_the_first_id_whose_prefix_mass_exceeds_u() -> None:
    row = [math.log(0.25), -math.inf, math.log(0.5), math.log(0.25)]
    logits = np.array([row] * 5, np.float32)
    assert draw(logits, 1.0, np.array([0.1, 0.249, 0.251, 0.749, 0.999])).tolist() == [0, 0, 2, 2, 3]


def test_at_temperature_zero_the_draft_is_the_first_of_the_largest() -> None:
    assert draw(np.array([[0.0, 2.0, 2.0]], np.float32), 0.0, np.array([0.99])).tolist() == [1]


def test_drafts_follow_the_draft_model_at_the_temperature(models: Models) -> None:
    samples, temperature, prompt = 4000, 0.8, (5, 9)
    requests = [Request(seed, prompt) for seed in range(samples)]
    drafts, logits = propose(models.draft, requests, np.ones(samples, np.int64), temperature)
    q = softmax(logits[0], temperature)
    counts = np.bincount([drafted[0] for drafted in drafts], minlength=len(q))
    common = q * samples >= 5
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(q[common], q[~common].sum()) * samples
    freedom = len(expected) - 1
    assert freedom >= 5
    # Pearson's statistic has mean f and variance 2 f; ten standard deviations allowed.
    assert ((observed - expected) ** 2 / expected).sum() < freedom + 10 * (2 * freedom) ** 0.5


def test_drafts_do_not_depend_on_the_batch_and_keep_their_logits(models: Models) -> None:
    requests = [Request(seed, (seed, 2 * seed, 3)) for seed in range(1, 5)]
    drafts, logits = propose(models.draft, requests, np.array([4, 0, 2, 3]), 0.8)
    assert [len(drafted) for drafted in drafts] == [4, 0, 2, 3]
    alone, alone_logits = propose(models.draft, requests[3:], np.array([3]), 0.8)
    assert alone == drafts[3:]
    assert alone_logits.tobytes() == logits[6:].tobytes()
    for i in range(3):
        context = models.draft.contexts([[*requests[3].prompt, *drafts[3][:i]]])
        assert models.draft.next_logits(context).tobytes() == logits[6 + i].tobytes()
