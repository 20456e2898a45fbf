"""Sampling parameters of one request: names, defaults and meaning. Ranges are checked in ``checks``."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class Method(str, enum.Enum):
    """How draft tokens are verified. Temperature 0 makes any of the lossless ones greedy."""

    STANDARD = "standard"
    """Rejection sampling (Leviathan et al. 2211.17192, Chen et al. 2302.01318)."""
    STRICT = "strict"
    """Sample from the target, accept while the sample is the draft token."""
    BLOCK = "block"
    """Block verification (Sun et al. 2403.10444)."""
    SYNTHETIC = "synthetic"
    """Accept at given rates, for load tests. Changes the distribution."""
    TYPICAL = "typical"
    """Typical acceptance (Medusa, Cai et al. 2401.10774). Changes the distribution."""
    RELAXED = "relaxed"
    """Accept what ranks high enough. Changes the distribution."""

    @property
    def lossy(self) -> bool:
        """Whether the emitted tokens no longer follow the target's distribution."""
        return self in (Method.SYNTHETIC, Method.TYPICAL, Method.RELAXED)


class LogprobsMode(str, enum.Enum):
    """Which number of a row is reported.

    Raw: the client's row. Processed: after masks, penalties, temperature, filters.
    """

    RAW_LOGPROBS = "raw_logprobs"
    PROCESSED_LOGPROBS = "processed_logprobs"
    RAW_LOGITS = "raw_logits"
    PROCESSED_LOGITS = "processed_logits"

    @property
    def raw(self) -> bool:
        """Whether it is a number of the client's row, not of the processed one."""
        return self in (LogprobsMode.RAW_LOGPROBS, LogprobsMode.RAW_LOGITS)

    @property
    def normalised(self) -> bool:
        """Whether it is a logprob, not a logit."""
        return self in (LogprobsMode.RAW_LOGPROBS, LogprobsMode.PROCESSED_LOGPROBS)


@dataclass(frozen=True, kw_only=True, eq=False)
class SamplingParams:
    """What one request asks for. Immutable and shared: requests with the same wishes hold the same object.

    Seed, position, draft lengths, histories and masks are not here: they differ from step to step and belong to
    the :class:`~sampler_kernels.step.Step`.

    Attributes:
        method: Verification method; ignored at temperature 0 unless it is synthetic, typical or relaxed.
        temperature: 0 (greedy) or [1e-5, inf).
        draft_temperature: Divides the draft logits; 0 or [1e-5, inf); default ``temperature``. 0 at a temperature
            above 0 makes the draft a point mass.
        top_k: Keep the k largest; 0 is off, above V is off.
        top_p: Keep the smallest head of this mass; (0, 1], 1 is off.
        min_p: Keep what is at least this fraction of the largest; [0, 1], 0 is off.
        stop_token_ids: Emitted tokens are cut after the first of these.
        min_tokens: Stop ids are masked until this many tokens have been output.
        max_tokens: The most tokens this step may emit, at least 1; None is no limit.
        allowed_token_ids: Only these ids, on every row; None is all.
        allowed_token_ids_by_row: One list for each of the k+1 rows; excludes ``allowed_token_ids``.
        logit_bias: Added to the logits of the named ids.
        bad_words: Id sequences whose last id is masked where the context ends in the ids before it.
        repetition_penalty: Above 0; 1 is off.
        frequency_penalty: Any finite number; 0 is off.
        presence_penalty: Any finite number; 0 is off.
        synthetic_rates: Acceptance rate of each draft position, each in [0, 1]; required by synthetic.
        typical_epsilon: (0, 1].
        typical_delta: (0, 1].
        relaxed_top_n: At least 1; required by relaxed.
        relaxed_margin: At least 0; required by relaxed.
        logprobs_modes: Which numbers are reported for each emitted token; may be empty.
        ranks: Whether ranks are reported too.
        top_logprobs: How many entries of the row are reported beside each emitted token, 0..256.
        logprob_token_ids: Ids whose value is reported beside each emitted token.
        acceptance_probabilities: Whether min(1, p/q) is reported for draft tokens up to the first rejection.
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
    synthetic_rates: Sequence[float] | None = None
    typical_epsilon: float = 0.3
    typical_delta: float = 0.09
    relaxed_top_n: int | None = None
    relaxed_margin: float | None = None
    logprobs_modes: Sequence[LogprobsMode] = (LogprobsMode.RAW_LOGPROBS,)
    ranks: bool = True
    top_logprobs: int = 0
    logprob_token_ids: Sequence[int] = ()
    acceptance_probabilities: bool = False
