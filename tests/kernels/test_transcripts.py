"""Eight published transcripts, decoded again with drafts of which some are right: tokens, lists and logprobs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sampler_kernels import LogprobsMode, SamplingParams
from tests.backends import BACKENDS
from tests.kernels.asking import Ask, answers, tokens_of
from tests.kernels.transcripts import VOCAB_SIZE, Position, transcripts

TOLERANCE = 5e-4
"""Three logprobs rounded to 3 decimals put up to 4.3e-4 too much mass into a row, which renormalisation takes out."""
PARAMS = SamplingParams(temperature=0, top_logprobs=3)
K = 4


def test_the_transcripts_are_all_there() -> None:
    lengths = [len(transcript) for transcript in transcripts()]
    assert (len(lengths), sum(lengths)) == (8, 359)
    for position in (position for transcript in transcripts() for position in transcript):
        rest = position.row().scatter(0, torch.tensor(position.ids), -torch.inf)
        assert rest.max() < min(position.logprobs), "the rest lies below the third"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("right", [0.0, 0.6, 1.0])
def test_decoded_again(backend: str, right: float) -> None:
    """All eight at once, each step verifying up to four drafts, of which a share is right."""
    generator = np.random.default_rng(8)
    texts = transcripts()
    done, accepted = [0] * len(texts), 0
    while active := [t for t, text in enumerate(texts) if done[t] < len(text)]:
        windows = [texts[t][done[t] : done[t] + K + 1] for t in active]
        drafts = [[_draft(position, right, generator) for position in window[:-1]] for window in windows]
        asks = [
            Ask(
                target=torch.stack([position.row() for position in window]),
                ids=ids,
                params=PARAMS,
                seed=t,
                position=done[t],
            )
            for t, window, ids in zip(active, windows, drafts, strict=True)
        ]
        result = answers(asks, backend)
        stood = [_leading(window, ids) for window, ids in zip(windows, drafts, strict=True)]
        assert result.num_accepted.tolist() == stood
        emitted = [window[: n + 1] for window, n in zip(windows, stood, strict=True)]
        assert tokens_of(result) == [[position.ids[0] for position in part] for part in emitted]

        flat = [position for part in emitted for position in part]
        raw = result.logprobs[LogprobsMode.RAW_LOGPROBS]
        assert raw.top_ids.reshape(-1, 3).tolist() == [list(position.ids) for position in flat]
        published = np.array([position.logprobs for position in flat])
        np.testing.assert_allclose(raw.top_values.reshape(-1, 3), published, atol=TOLERANCE, rtol=0)
        np.testing.assert_allclose(raw.values, published[:, 0], atol=TOLERANCE, rtol=0)
        assert raw.ranks.tolist() == [position.logprobs.count(position.logprobs[0]) for position in flat]
        for t, n in zip(active, stood, strict=True):
            done[t] += n + 1
        accepted += sum(stood)
    # All right: every step but the last of a text emits K + 1, none wrong is accepted; some right: some of each.
    total = sum(len(text) for text in texts)
    assert (accepted == 0, accepted > total * K // (K + 2)) == (right == 0, right == 1)


def _draft(position: Position, right: float, generator: np.random.Generator) -> int:
    """The printed token with probability ``right``, else one of the two after it or any other."""
    wrong = [*position.ids[1:], (position.ids[0] + 1) % VOCAB_SIZE]
    return position.ids[0] if generator.random() < right else int(generator.choice(wrong))


def _leading(window: tuple[Position, ...], ids: list[int]) -> int:
    """How many drafts are right before the first wrong one."""
    agrees = [position.ids[0] == x for position, x in zip(window[:-1], ids, strict=True)]
    return agrees.index(False) if False in agrees else len(agrees)
