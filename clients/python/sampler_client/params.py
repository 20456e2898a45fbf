"""Sampling parameters of one request: names, defaults and meaning. Their ranges are the service's to check."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class Method(str, enum.Enum):
    """How draft tokens are judged. At temperature 0 every lossless method is greedy."""

    STANDARD = "standard"
    """Rejection sampling, token by token (arXiv 2211.17192, 2302.01318)."""
    STRICT = "strict"
    """Draw from the target at each row and accept while the draw is the draft token."""
    BLOCK = "block"
    """Judge the draft tokens jointly (arXiv 2403.10444)."""
    SYNTHETIC = "synthetic"
    """Accept at given rates, for load tests. Lossy."""
    TYPICAL = "typical"
    """Accept what is likely enough for the entropy of the row (arXiv 2401.10774). Lossy."""
    RELAXED = "relaxed"
    """Accept what is among the first of the row and near its largest. Lossy."""


class LogprobsMode(str, enum.Enum):
    """What a reported number is. Raw: the row as given. Processed: after masks, penalties, temperature, filters."""

    RAW_LOGPROBS = "raw_logprobs"
    PROCESSED_LOGPROBS = "processed_logprobs"
    RAW_LOGITS = "raw_logits"
    PROCESSED_LOGITS = "processed_logits"


@dataclass(frozen=True, kw_only=True, eq=False)
class SamplingParams:
    """What one request asks for. Make one and keep it: the encoded form is remembered with the object.

    A list given here must not be changed afterwards. Seeds, positions, histories and masks differ from step to step
    and belong to :class:`~sampler_client.step.Step`. A value out of its range makes the service refuse the step.

    Attributes:
        method: How draft tokens are judged.
        temperature: Divides the target logits; 0 (greedy) or at least 1e-5.
        draft_temperature: Divides the raw draft logits; 0 or at least 1e-5; None: ``temperature``. 0 at a temperature
            above 0 makes the draft a point mass.
        top_k: Keep the k largest; 0 and anything above V is off.
        top_p: Keep the smallest head of the order with this mass; (0, 1], 1 is off.
        min_p: Keep what is at least this fraction of the largest probability; [0, 1], 0 is off.
        stop_token_ids: Emitted tokens are cut after the first of these.
        min_tokens: Stop ids are masked until this many tokens have been output.
        max_tokens: The most tokens this step may emit, at least 1; None: no limit.
        allowed_token_ids: The only ids that may be emitted, on every row; None: all. Empty is refused.
        allowed_token_ids_by_row: The same with one list for each of the k + 1 rows; excludes ``allowed_token_ids``.
        logit_bias: Id -> bias in logits.
        bad_words: Sequences of ids that must not be completed.
        repetition_penalty: Above 0; 1 is off.
        frequency_penalty: In logits per occurrence; 0 is off.
        presence_penalty: In logits; 0 is off.
        synthetic_rates: For synthetic, which requires it: at least k rates, each in [0, 1].
        typical_epsilon: For typical: (0, 1].
        typical_delta: For typical: (0, 1].
        relaxed_top_n: For relaxed, which requires it: at least 1.
        relaxed_margin: For relaxed, which requires it: at least 0, in processed logits.
        logprobs_modes: Which numbers to report for each emitted token; empty: none.
        ranks: Whether to report ranks.
        top_logprobs: Entries of the row to report beside each emitted token, 0..256.
        logprob_token_ids: Ids whose value to report beside each emitted token.
        acceptance_probabilities: Whether to report min(1, p / q) of the draft tokens up to the first rejection.
    """

    method: Method = Method.STANDARD
    temperature: float = 1.0
    draft_temperature: float | None = None
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
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
    synthetic_rates: Sequence[float] = ()
    typical_epsilon: float = 0.3
    typical_delta: float = 0.09
    relaxed_top_n: int | None = None
    relaxed_margin: float | None = None
    logprobs_modes: Sequence[LogprobsMode] = (LogprobsMode.RAW_LOGPROBS,)
    ranks: bool = True
    top_logprobs: int = 0
    logprob_token_ids: Sequence[int] = ()
    acceptance_probabilities: bool = False
