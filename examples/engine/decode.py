"""The engine's loop: draft a few tokens for every request, score them with the target, have them verified, go on."""

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from engine.drafting import propose
from engine.ngram import NgramModel
from engine.runs import Request, Run, Settings, StepCount
from engine.verifier import Step, Verifier


def decode(
    target: NgramModel, draft: NgramModel, verifier: Verifier, prompts: Sequence[Sequence[int]], settings: Settings
) -> Run:
    """Continue every prompt by `max_new_tokens` tokens, all of them together, one verification call per step."""
    requests = [Request(settings.first_seed + i, tuple(prompt)) for i, prompt in enumerate(prompts)]
    verify_seconds, model_seconds = [], []
    while running := [r for r in requests if len(r.emitted) < settings.max_new_tokens]:
        started = perf_counter()
        step = prepare_step(target, draft, running, settings)
        prepared = perf_counter()
        results = verifier.verify(step)
        verify_seconds.append(perf_counter() - prepared)
        model_seconds.append(prepared - started)
        for request, drafted, verified in zip(running, step.draft_lengths, results, strict=True):
            request.emitted += verified.tokens
            request.steps.append(StepCount(int(drafted), verified.num_accepted))
    return Run(settings, tuple(requests), tuple(verify_seconds), tuple(model_seconds))


def decode_alone(target: NgramModel, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[list[int]]:
    """The new tokens of greedy decoding with the target model and nothing else: no drafts, no service."""
    sequences = [list(prompt) for prompt in prompts]
    for _ in range(max_new_tokens):
        logits = target.next_logits(target.contexts(sequences))
        for sequence, token_id in zip(sequences, logits.argmax(axis=-1), strict=True):
            sequence.append(int(token_id))
    return [sequence[len(prompt) :] for sequence, prompt in zip(sequences, prompts, strict=True)]


def prepare_step(target: NgramModel, draft: NgramModel, requests: Sequence[Request], settings: Settings) -> Step:
    """Draft for every request, at most one token fewer than it may still emit, and score the drafts with the target."""
    lengths = np.array([min(settings.draft_length, settings.max_new_tokens - len(r.emitted) - 1) for r in requests])
    drafts, draft_logits = propose(draft, requests, lengths, settings.params.temperature)
    texts = [
        request.token_ids + drafted[:j]
        for request, drafted in zip(requests, drafts, strict=True)
        for j in range(len(drafted) + 1)
    ]
    return Step(
        target_logits=target.next_logits(target.contexts(texts)),
        draft_logits=draft_logits if settings.params.temperature > 0 else None,
        draft_token_ids=np.array([token_id for drafted in drafts for token_id in drafted], np.int64),
        draft_lengths=lengths,
        seeds=np.array([r.seed for r in requests], np.uint64),
        positions=np.array([len(r.token_ids) for r in requests], np.uint64),
        params=settings.params,
    )
