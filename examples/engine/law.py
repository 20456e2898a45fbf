"""Whether sampling through the service has the target's law: many seeds on a few prompts, against what p says."""

from collections.abc import Sequence

import numpy as np

from engine.arrays import Floats, Ints
from engine.checks import Check
from engine.decode import prepare_step
from engine.models import Models
from engine.ngram import NgramModel
from engine.randomness import softmax
from engine.runs import Request, Settings
from engine.verifier import Params, Verifier

SMALLEST_BIN = 5.0
"""Tokens expected less often than this share one bin, so that Pearson's statistic is close to chi-square."""

DEVIATIONS = 10.0
"""Allowed distance from the mean in standard deviations: out of reach of chance, within reach of a wrong law."""

SEEDS_AT_ONCE = 512
"""Most requests in one step: 54 MB of logits at 9,000 words, well below what a message may hold."""


def next_token_law(
    models: Models, verifier: Verifier, prompts: Sequence[Sequence[int]], *, temperature: float, samples_per_prompt: int
) -> list[Check]:
    """Checks of the token after each of `prompts` over `samples_per_prompt` seeds, temperature above 0.

    For each seed one token is drafted and verified. The first emitted token must follow p, by a chi-square test over
    all prompts, and the draft token must stand with probability sum(min(p, q)) (Leviathan et al. 2211.17192, 3.2).
    """
    tests: list[tuple[float, int]] = []
    stood, mean, variance = 0, 0.0, 0.0
    for i, prompt in enumerate(prompts):
        p, q = (_next(model, prompt, temperature) for model in (models.target, models.draft))
        # Each prompt has seeds of its own: the same ones would tie its uniforms to those of the other prompts.
        seeds = range(i * samples_per_prompt, (i + 1) * samples_per_prompt)
        counts, accepted = _sample(models, verifier, prompt, temperature, seeds)
        tests.append(_pearson(counts, p))
        probability = float(np.minimum(p, q).sum())
        stood += accepted
        mean += samples_per_prompt * probability
        variance += samples_per_prompt * probability * (1 - probability)

    samples = len(prompts) * samples_per_prompt
    over = f"temperature {temperature:g}: over {samples:,} seeds"
    # Independent chi-square variables add up, degrees of freedom too; with f of these, mean f and variance 2 f.
    statistic, freedom = sum(s for s, _ in tests), sum(f for _, f in tests)
    allowed = freedom + DEVIATIONS * (2 * freedom) ** 0.5
    margin = DEVIATIONS * variance**0.5
    return [
        Check(
            f"{over} the law of the next token equals the target's",
            freedom > 0 and statistic < allowed,
            f"chi-square {statistic:.1f} at {freedom} degrees of freedom, below {allowed:.1f} allowed",
        ),
        Check(
            f"{over} a draft token stands as often as sum(min(p, q)) says",
            abs(stood - mean) <= margin,
            f"{stood / samples:.2%} stood, {mean / samples:.2%} expected, {margin / samples:.2%} of difference allowed",
        ),
    ]


def _next(model: NgramModel, token_ids: Sequence[int], temperature: float) -> Floats:
    return softmax(model.next_logits(model.contexts([token_ids]))[0], temperature)


def _sample(
    models: Models, verifier: Verifier, prompt: Sequence[int], temperature: float, seeds: range
) -> tuple[Ints, int]:
    """How often each token [V] came first after `prompt`, one draft token each, and how often the draft token stood."""
    settings = Settings(Params(temperature), max_new_tokens=2, draft_length=1)
    counts, stood = np.zeros(models.target.vocab_size, np.int64), 0
    for start in range(0, len(seeds), SEEDS_AT_ONCE):
        requests = [Request(seed, tuple(prompt)) for seed in seeds[start : start + SEEDS_AT_ONCE]]
        for verified in verifier.verify(prepare_step(models.target, models.draft, requests, settings)):
            counts[verified.tokens[0].token_id] += 1
            stood += verified.num_accepted
    return counts, stood


def _pearson(counts: Ints, p: Floats) -> tuple[float, int]:
    """Pearson's statistic of `counts` [V] against `p` [V], and its degrees of freedom."""
    samples = counts.sum()
    common = p * samples >= SMALLEST_BIN
    observed = np.append(counts[common], counts[~common].sum())
    expected = np.append(p[common], p[~common].sum()) * samples
    if len(expected) > 1 and expected[-1] < SMALLEST_BIN:
        # What the rare tokens share is itself too small a bin: it joins the smallest of the others.
        smallest = int(expected[:-1].argmin())
        observed[smallest] += observed[-1]
        expected[smallest] += expected[-1]
        observed, expected = observed[:-1], expected[:-1]
    return float(((observed - expected) ** 2 / expected).sum()), len(expected) - 1
