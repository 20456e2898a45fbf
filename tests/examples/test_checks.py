"""The demo's checks pass for a right verifier and fail for wrong ones."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from engine.arrays import Floats
from engine.checks import equals_target_alone, logprobs_are_the_targets, same_tokens
from engine.corpus import Corpus
from engine.decode import decode
from engine.demonstration import demonstrate
from engine.law import next_token_law
from engine.models import Models
from engine.runs import Run, Settings
from engine.verifier import EmittedToken, Params, Step, Verified, Verifier
from tests.examples.fake_verifier import FakeVerifier

SAMPLED, GREEDY = Settings(Params(0.8, 3), 16), Settings(Params(0.0, 3), 16)


class RedrawsFromTarget(FakeVerifier):
    """The classic fault: after a rejection it samples p, not the residual."""

    def residual(self, p: Floats, q: Floats) -> Floats:  # noqa: ARG002
        return p


class UnscaledDraft(FakeVerifier):
    """Compares p at the temperature with q at temperature 1."""

    def verify(self, step: Step) -> Sequence[Verified]:
        assert step.draft_logits is not None
        return super().verify(replace(step, draft_logits=step.draft_logits * np.float32(step.params.temperature)))


class NeverAccepts(FakeVerifier):
    """Lossless and useless: it answers as if nothing had been drafted."""

    def verify(self, step: Step) -> Sequence[Verified]:
        first_rows = np.cumsum(step.draft_lengths + 1) - step.draft_lengths - 1
        none = np.zeros(0, np.int64)
        lengths = np.zeros_like(step.draft_lengths)
        return super().verify(
            replace(
                step,
                target_logits=step.target_logits[first_rows],
                draft_logits=None,
                draft_token_ids=none,
                draft_lengths=lengths,
            )
        )


def _run(models: Models, corpus: Corpus, settings: Settings) -> Run:
    return decode(models.target, models.draft, FakeVerifier(), corpus.prompts[:2], settings)


def _with_first(run: Run, token: EmittedToken) -> Run:
    first, *others = run.requests
    return replace(run, requests=(replace(first, emitted=[token, *first.emitted[1:]]), *others))


def test_all_checks_hold_for_a_right_verifier(corpus: Corpus, models: Models) -> None:
    done = demonstrate(
        models, FakeVerifier(), corpus.prompts[:4], sampled=SAMPLED, greedy=GREEDY, samples_per_prompt=500
    )
    assert len(done.checks) == 6
    assert [check.title for check in done.checks if not check.passed] == []
    assert done.sampled.settings is SAMPLED
    assert done.greedy.settings is GREEDY


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verifier", "law_holds", "acceptance_holds"),
    [
        (RedrawsFromTarget(), False, None),
        (UnscaledDraft(), False, None),
        (NeverAccepts(), None, False),
    ],
)
def test_the_law_finds_wrong_verifiers(
    corpus: Corpus, models: Models, verifier: Verifier, law_holds: bool | None, acceptance_holds: bool | None
) -> None:
    """None: that check is not the one to find this fault, at as many samples as the demo takes."""
    law, acceptance = next_token_law(models, verifier, corpus.prompts[:8], temperature=0.8, samples_per_prompt=1024)
    assert law_holds in (None, law.passed), law.finding
    assert acceptance_holds in (None, acceptance.passed), acceptance.finding


def test_one_wrong_token_is_seen(corpus: Corpus, models: Models) -> None:
    run = _run(models, corpus, GREEDY)
    token = run.requests[0].emitted[0]
    assert equals_target_alone(run, models.target).passed
    check = equals_target_alone(_with_first(run, replace(token, token_id=token.token_id + 1)), models.target)
    assert not check.passed
    assert check.finding == "31 of 32 tokens equal"


def test_one_different_token_is_seen(corpus: Corpus, models: Models) -> None:
    run = _run(models, corpus, SAMPLED)
    other = _with_first(run, replace(run.requests[0].emitted[0], rank=99))
    assert same_tokens("", run.requests, _run(models, corpus, SAMPLED).requests).passed
    assert not same_tokens("", run.requests, other.requests).passed
    assert not same_tokens("", run.requests, [replace(r, emitted=r.emitted[:-1]) for r in run.requests]).passed


def test_a_logprob_that_is_off_is_seen(corpus: Corpus, models: Models) -> None:
    run = _run(models, corpus, SAMPLED)
    token = run.requests[0].emitted[0]
    assert logprobs_are_the_targets([run], models.target).passed
    off = replace(token, logprob=token.logprob + 2e-4)
    off_in_top = replace(token, top=(*token.top[:2], replace(token.top[2], logprob=token.top[2].logprob - 2e-4)))
    for wrong in (off, off_in_top):
        assert not logprobs_are_the_targets([_with_first(run, wrong)], models.target).passed
