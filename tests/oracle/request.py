"""One request as the oracle sees it, and the refusal that a bad one meets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

Json: TypeAlias = Any
"""A value as json.loads gives it, of no type until step_file has looked at it."""

METHODS = ("standard", "strict", "block", "synthetic", "typical", "relaxed")
LOSSY_METHODS = ("synthetic", "typical", "relaxed")
LOGPROBS_MODES = ("raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits")
PLACEHOLDER = -1
"""The draft id of a slot in which no token was drawn."""


class Refusal(Exception):
    """INVALID_ARGUMENT for the whole step, naming the request (None: the step itself) and the field."""

    def __init__(self, request: int | None, field_name: str, message: str) -> None:
        super().__init__(f"request {request}, {field_name}: {message}")
        self.request = request
        self.field = field_name


@dataclass(frozen=True)
class Params:
    """Sampling parameters by their step-file names; None where a parameter has no neutral value."""

    method: str = "standard"
    temperature: float = 1.0
    draft_temperature: float | None = None
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    position: int = 0
    stop_token_ids: Sequence[int] = ()
    min_tokens: int = 0
    max_tokens: int | None = None
    allowed_token_ids: Sequence[int] | None = None
    allowed_token_ids_by_row: Sequence[Sequence[int]] | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: Sequence[Sequence[int]] = ()
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    prompt_token_ids: Sequence[int] = ()
    output_token_ids: Sequence[int] = ()
    num_output_tokens: int | None = None
    synthetic_rates: Sequence[float] | None = None
    typical_epsilon: float = 0.3
    typical_delta: float = 0.09
    relaxed_top_n: int | None = None
    relaxed_margin: float | None = None
    logprobs_modes: Sequence[str] = ("raw_logprobs",)
    ranks: bool = True
    top_logprobs: int = 0
    logprob_token_ids: Sequence[int] = ()
    acceptance_probabilities: bool = False
    target_logsumexp: Sequence[float] | None = None
    draft_logsumexp: Sequence[float] | None = None


@dataclass(frozen=True)
class Request:
    """One request's step: logits already rounded to their dtype and held as fp32.

    target_logits [k + 1, V]; draft_logits [k, V_d] or None; draft_id_map [V_d] or None; draft_token_ids [k] in
    target ids, -1 where no token was drawn.
    """

    vocab_size: int
    target_logits: Logits
    draft_token_ids: Sequence[int]
    params: Params = field(default_factory=Params)
    draft_logits: Logits | None = None
    draft_id_map: Sequence[int] | None = None

    @property
    def k(self) -> int:
        """The number of draft slots, placeholders included."""
        return len(self.draft_token_ids)

    @property
    def num_drawn(self) -> int:
        """The number of draft tokens before the first placeholder."""
        ids = list(self.draft_token_ids)
        return ids.index(PLACEHOLDER) if PLACEHOLDER in ids else len(ids)

    @property
    def output_length(self) -> int:
        """The number of tokens emitted before this step, for min_tokens."""
        given = self.params.num_output_tokens
        return len(self.params.output_token_ids) if given is None else given

    @property
    def point_mass(self) -> bool:
        """Whether q is a point mass on each draft token, so that draft logits are not read."""
        p = self.params
        return self.draft_logits is None or (p.draft_temperature == 0.0 and p.temperature > 0.0)

    @property
    def draft_temperature(self) -> float:
        """What draft logits are divided by; the request's temperature unless given."""
        given = self.params.draft_temperature
        return self.params.temperature if given is None else given
