import numpy as np
import pytest

from engine.corpus import Corpus
from engine.decode import decode, decode_alone
from engine.models import Models
from engine.runs import Request, Run, Settings, StepCount
from engine.verifier import Params
from tests.examples.fake_verifier import FakeVerifier


@pytest.mark.parametrize("draft_length", [0, 1, 4, 7])
def test_greedy_text_is_the_targets_own(corpus: Corpus, models: Models, draft_length: int) -> None:
    settings = Settings(Params(0.0), max_new_tokens=21, draft_length=draft_length)
    run = decode(models.target, models.draft, FakeVerifier(), corpus.prompts[:8], settings)
    emitted = [[token.token_id for token in request.emitted] for request in run.requests]
    assert emitted == decode_alone(models.target, corpus.prompts[:8], 21)
    assert len(run.verify_seconds) <= 21 / (1 if draft_length == 0 else 1.1)


def test_every_step_carries_what_the_verifier_needs(corpus: Corpus, models: Models) -> None:
    verifier = FakeVerifier()
    settings = Settings(Params(0.8, 3), max_new_tokens=10, first_seed=40)
    run = decode(models.target, models.draft, verifier, corpus.prompts[:3], settings)
    assert len(verifier.steps) == len(run.verify_seconds) == len(run.model_seconds)
    emitted = dict.fromkeys((40, 41, 42), 0)
    replayed = {r.seed: iter(r.steps) for r in run.requests}
    for step in verifier.steps:
        assert step.params == settings.params
        assert len(step.target_logits) == len(step.draft_token_ids) + len(step.seeds)
        assert step.draft_logits is not None
        assert step.draft_logits.shape == (len(step.draft_token_ids), len(corpus.vocabulary))
        for seed, position, length in zip(step.seeds.tolist(), step.positions, step.draft_lengths, strict=True):
            assert position == len(corpus.prompts[seed - 40]) + emitted[seed]
            assert length == min(4, 10 - emitted[seed] - 1)
            emitted[seed] += next(replayed[seed]).accepted + 1
    assert set(emitted.values()) == {10}


def test_rows_are_the_targets_after_each_prefix_of_the_drafts(corpus: Corpus, models: Models) -> None:
    verifier = FakeVerifier()
    decode(models.target, models.draft, verifier, corpus.prompts[:2], Settings(Params(0.8), max_new_tokens=5))
    step = verifier.steps[0]
    for r, prompt in enumerate(corpus.prompts[:2]):
        drafts = step.draft_token_ids[4 * r : 4 * r + 4].tolist()
        expected = models.target.next_logits(models.target.contexts([prompt + drafts[:j] for j in range(5)]))
        assert expected.tobytes() == step.target_logits[5 * r : 5 * r + 5].tobytes()


def test_at_temperature_zero_no_draft_logits_are_sent(corpus: Corpus, models: Models) -> None:
    verifier = FakeVerifier()
    decode(models.target, models.draft, verifier, corpus.prompts[:1], Settings(Params(0.0), max_new_tokens=3))
    assert [step.draft_logits for step in verifier.steps] == [None] * len(verifier.steps)


def test_a_prompt_gets_the_same_tokens_alone_and_in_a_batch(corpus: Corpus, models: Models) -> None:
    settings = Settings(Params(0.8), max_new_tokens=16)
    together = decode(models.target, models.draft, FakeVerifier(), corpus.prompts[:4], settings)
    alone = decode(models.target, models.draft, FakeVerifier(), corpus.prompts[:1], settings)
    assert together.requests[0].emitted == alone.requests[0].emitted


def test_counting() -> None:
    requests = (
        Request(0, (), steps=[StepCount(2, 2), StepCount(2, 0), StepCount(0, 0)]),
        Request(1, (), steps=[StepCount(2, 1)]),
    )
    run = Run(Settings(Params(1.0), 5, draft_length=2), requests, (0.1,), (0.1,))
    assert run.acceptance_by_position == [StepCount(3, 2), StepCount(3, 1)]
    assert run.tokens_per_step == (3 + 1 + 1 + 2) / 4
    assert requests[0].stood == [True, True, False, False, False]


def test_text_goes_on_where_it_ended(corpus: Corpus, models: Models) -> None:
    run = decode(models.target, models.draft, FakeVerifier(), corpus.prompts[:1], Settings(Params(0.8), 8))
    request = run.requests[0]
    assert request.token_ids[:8] == corpus.prompts[0]
    assert np.array_equal(request.token_ids[8:], [token.token_id for token in request.emitted])
