"""What makes the output believable: each check says what it compared and what it saw, and passes or fails."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.decode import decode_alone
from engine.ngram import NgramModel
from engine.randomness import softmax
from engine.runs import Request, Run

LOGPROB_TOLERANCE = 1e-4
"""How far a returned log probability may lie from double precision on the same logits: what the service promises."""


@dataclass(frozen=True)
class Check:
    """`title` says what must hold, `finding` what was seen."""

    title: str
    passed: bool
    finding: str


def equals_target_alone(run: Run, target: NgramModel) -> Check:
    """That a run at temperature 0 emitted what the target alone would, token for token."""
    alone = decode_alone(target, [r.prompt for r in run.requests], run.settings.max_new_tokens)
    emitted = [[token.token_id for token in r.emitted] for r in run.requests]
    return Check(
        "temperature 0: the text equals decoding with the target alone, token for token",
        emitted == alone,
        f"{_matches(emitted, alone)} tokens equal",
    )


def same_tokens(title: str, first: Sequence[Request], second: Sequence[Request]) -> Check:
    """That the requests of two runs emitted the same tokens with the same log probabilities, ranks and top entries."""
    emitted, again = [r.emitted for r in first], [r.emitted for r in second]
    return Check(title, emitted == again, f"{_matches(emitted, again)} tokens equal, their logprobs too")


def logprobs_are_the_targets(runs: Sequence[Run], target: NgramModel) -> Check:
    """That every log probability is the target's, by the engine's own log-softmax in double precision."""
    worst, compared = 0.0, 0
    for request in (request for run in runs for request in run.requests):
        before = [request.token_ids[: len(request.prompt) + i] for i in range(len(request.emitted))]
        rows = np.log(softmax(target.next_logits(target.contexts(before)), 1.0))
        for row, token in zip(rows, request.emitted, strict=True):
            named = [(token.token_id, token.logprob), *((entry.token_id, entry.logprob) for entry in token.top)]
            worst = max(worst, *(abs(float(row[token_id]) - logprob) for token_id, logprob in named))
            compared += len(named)
    return Check(
        "every logprob, of emitted tokens and of the most likely ones, is the target's own",
        worst <= LOGPROB_TOLERANCE,
        f"{compared:,} within {worst:.1e} of double precision, {LOGPROB_TOLERANCE:.0e} allowed",
    )


def _matches(first: Sequence[Sequence[object]], second: Sequence[Sequence[object]]) -> str:
    """How many places hold the same token, as "n of m"."""
    pairs = [pair for rows in zip(first, second, strict=True) for pair in zip(*rows, strict=False)]
    return f"{sum(a == b for a, b in pairs)} of {max(sum(map(len, first)), sum(map(len, second)))}"
