"""What the engine needs from the sampling service: one verification step for a whole batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.arrays import Ints, Logits, Words64


@dataclass(frozen=True)
class Params:
    """Sampling parameters, the same for every request of a step.

    `top_logprobs` is the number of most likely tokens that the result lists beside each emitted one.
    """

    temperature: float
    top_logprobs: int = 0


@dataclass(frozen=True)
class Step:
    """One step of B requests; request r has k_r draft tokens and k_r + 1 target rows, in request order.

    target_logits [sum (k_r + 1), V]: row j of a request is for the token after j of its draft tokens.
    draft_logits [sum k_r, V]: what each draft token was drawn from; None at temperature 0, where nothing reads it.
    draft_token_ids [sum k_r], draft_lengths [B].
    seeds [B]; positions [B]: the absolute index in its sequence of the token that the request's row 0 predicts.
    """

    target_logits: Logits
    draft_logits: Logits | None
    draft_token_ids: Ints
    draft_lengths: Ints
    seeds: Words64
    positions: Words64
    params: Params


@dataclass(frozen=True)
class TopEntry:
    """A token among the most likely ones of a row, with its log probability (natural logarithm)."""

    token_id: int
    logprob: float


@dataclass(frozen=True)
class EmittedToken:
    """A token that the step decided on.

    `logprob` is the target's, before temperature; `rank` counts the tokens of the row at least as likely, itself
    included; `top` descends.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[TopEntry, ...]


@dataclass(frozen=True)
class Verified:
    """One request's result: `num_accepted` draft tokens that stood, then one token more."""

    tokens: tuple[EmittedToken, ...]
    num_accepted: int


class Verifier(Protocol):
    """Decides how many draft tokens of each request stand, and the token after them."""

    def verify(self, step: Step) -> Sequence[Verified]:
        """Results of the step's requests, in their order. Raises where the step or one of its requests is refused."""
        ...
