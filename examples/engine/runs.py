"""A run of the engine: its settings, its requests, and what can be counted in it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.verifier import EmittedToken, Params


@dataclass(frozen=True)
class Settings:
    """How to decode. Request i of a run has the seed `first_seed` + i."""

    params: Params
    max_new_tokens: int
    draft_length: int = 4
    first_seed: int = 0


@dataclass(frozen=True)
class StepCount:
    """Draft tokens of one request in one step, and how many of them stood."""

    drafted: int
    accepted: int


@dataclass
class Request:
    """A sequence being decoded."""

    seed: int
    prompt: tuple[int, ...]
    emitted: list[EmittedToken] = field(default_factory=list)
    steps: list[StepCount] = field(default_factory=list)

    @property
    def token_ids(self) -> list[int]:
        """The prompt and what followed."""
        return [*self.prompt, *(token.token_id for token in self.emitted)]

    @property
    def stood(self) -> list[bool]:
        """For each emitted token whether it is a draft token that stood, or the last of its step."""
        return [stood for step in self.steps for stood in [True] * step.accepted + [False]]


@dataclass(frozen=True)
class Run:
    """A finished run over several prompts, with the time of each step's verification and of its models, in seconds."""

    settings: Settings
    requests: tuple[Request, ...]
    verify_seconds: tuple[float, ...]
    model_seconds: tuple[float, ...]

    @property
    def tokens_per_step(self) -> float:
        """Mean number of tokens that a request gained in a step: 1 without drafts, `draft_length` + 1 at most."""
        counts = self._counts()
        return sum(count.accepted + 1 for count in counts) / len(counts)

    @property
    def acceptance_by_position(self) -> list[StepCount]:
        """For each draft position from the first: how often a token was drafted there, and how often it stood."""
        counts = self._counts()
        return [
            StepCount(sum(c.drafted > i for c in counts), sum(c.accepted > i for c in counts))
            for i in range(self.settings.draft_length)
        ]

    def _counts(self) -> Sequence[StepCount]:
        return [count for request in self.requests for count in request.steps]
