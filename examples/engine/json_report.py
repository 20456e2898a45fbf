"""The demo's findings as one JSON value."""

from typing import Any

from engine.corpus import Vocabulary
from engine.findings import Findings, percentiles_ms
from engine.runs import Request, Run
from engine.verifier import EmittedToken


def json_report(findings: Findings) -> dict[str, Any]:
    """What the text view prints, and the token rows of both runs; log probabilities unrounded."""
    corpus, models = findings.corpus, findings.models
    return {
        "corpus": {
            "topics": corpus.num_topics,
            "characters": corpus.num_characters,
            "vocab_size": len(corpus.vocabulary),
            "training_tokens": len(corpus.training_ids),
            "held_out_tokens": len(corpus.held_out_ids),
        },
        "models": {
            "target": {"order": models.target.order, "held_out_nats_per_token": models.target_nats},
            "draft": {"order": models.draft.order, "held_out_nats_per_token": models.draft_nats},
            "training_seconds": models.seconds,
        },
        "service": findings.service,
        "runs": [_run(run, corpus.vocabulary) for run in (findings.shown, findings.other)],
        "checks": [{"title": c.title, "passed": c.passed, "finding": c.finding} for c in findings.checks],
        "passed": findings.passed,
        "seconds": findings.seconds,
    }


def _run(run: Run, vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "temperature": run.settings.params.temperature,
        "draft_length": run.settings.draft_length,
        "acceptance_by_position": [{"drafted": c.drafted, "accepted": c.accepted} for c in run.acceptance_by_position],
        "tokens_per_step": run.tokens_per_step,
        "num_steps": len(run.verify_seconds),
        "verify_ms": percentiles_ms(run.verify_seconds),
        "models_ms": percentiles_ms(run.model_seconds),
        "requests": [_request(request, vocabulary) for request in run.requests],
    }


def _request(request: Request, vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "seed": request.seed,
        "prompt": vocabulary.decode(request.prompt),
        "text": vocabulary.decode(token.token_id for token in request.emitted),
        "tokens": [
            {**_token(token, vocabulary), "stood": stood}
            for token, stood in zip(request.emitted, request.stood, strict=True)
        ],
    }


def _token(token: EmittedToken, vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "token": vocabulary.words[token.token_id],
        "token_id": token.token_id,
        "logprob": token.logprob,
        "rank": token.rank,
        "top": [
            {"token": vocabulary.words[e.token_id], "token_id": e.token_id, "logprob": e.logprob} for e in token.top
        ],
    }
