"""What the demo does with a verifier: decode at two temperatures, then check what came out."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.checks import Check, equals_target_alone, logprobs_are_the_targets, same_tokens
from engine.decode import decode
from engine.law import next_token_law
from engine.models import Models
from engine.runs import Run, Settings
from engine.verifier import Verifier


@dataclass(frozen=True)
class Demonstration:
    """A run with randomness, a greedy one, and the checks of both."""

    sampled: Run
    greedy: Run
    checks: list[Check]


def demonstrate(
    models: Models,
    verifier: Verifier,
    prompts: Sequence[Sequence[int]],
    *,
    sampled: Settings,
    greedy: Settings,
    samples_per_prompt: int,
) -> Demonstration:
    """Decode `prompts` with both settings, temperature 0 in `greedy` only, and check what came out.

    The law of the next token is sampled `samples_per_prompt` times after each prompt.
    """

    def run(settings: Settings, some: Sequence[Sequence[int]]) -> Run:
        return decode(models.target, models.draft, verifier, some, settings)

    first, second, alone = run(sampled, prompts), run(sampled, prompts), run(sampled, prompts[:1])
    at_zero = run(greedy, prompts)
    temperature = sampled.params.temperature
    return Demonstration(
        first,
        at_zero,
        [
            equals_target_alone(at_zero, models.target),
            same_tokens(
                f"temperature {temperature:g}: a second run with the same seeds gives the same tokens",
                first.requests,
                second.requests,
            ),
            same_tokens(
                f"temperature {temperature:g}: a prompt gives the same tokens in a batch of its own",
                first.requests[:1],
                alone.requests,
            ),
            *next_token_law(models, verifier, prompts, temperature=temperature, samples_per_prompt=samples_per_prompt),
            logprobs_are_the_targets([first, at_zero], models.target),
        ],
    )
