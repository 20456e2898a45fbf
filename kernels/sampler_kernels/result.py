"""What a step answers: flat columns on the host, in request order."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sampler_kernels.params import LogprobsMode


class Status(enum.IntEnum):
    """How a request ended. Anything but OK emits no token."""

    OK = 1
    INVALID_LOGITS = 2
    """A row that the result depends on holds NaN or +inf, or nothing is left in it; ``bad_row`` says which."""
    INVALID_DRAFT_TOKEN = 3
    """A draft token id in device memory lies outside its range."""


class FinishReason(enum.IntEnum):
    """Why a request should go no further."""

    NONE = 0
    STOP = 1
    LENGTH = 2


@dataclass(frozen=True, eq=False)
class ModeLogprobs:
    """One mode's numbers. Requests that did not ask for the mode have NaN values, rank 0 and no entries.

    Attributes:
        values: [M] float32, of each emitted token.
        ranks: [M] int32, count of the row's logits >= the token's own (1 is the largest); 0 where not asked for.
        cumulative: [B] float64, sum of ``values`` over the request's emitted tokens; NaN in the logits modes.
        cu_top: [M+1] int32 prefix sum of the entries reported beside each token.
        top_ids: [cu_top[M]] int32, descending by value, ties by lowest id.
        top_values: [cu_top[M]] float32.
        cu_chosen: [M+1] int32, likewise for the ids that the request listed.
        chosen_ids: [cu_chosen[M]] int32, in the order listed.
        chosen_values: [cu_chosen[M]] float32.
    """

    values: NDArray[np.float32]
    ranks: NDArray[np.int32]
    cumulative: NDArray[np.float64]
    cu_top: NDArray[np.int32]
    top_ids: NDArray[np.int32]
    top_values: NDArray[np.float32]
    cu_chosen: NDArray[np.int32]
    chosen_ids: NDArray[np.int32]
    chosen_values: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Timings:
    """Where the time of a step went, in microseconds."""

    upload_us: float = 0.0
    device_us: float = 0.0
    download_us: float = 0.0


@dataclass(frozen=True, eq=False)
class StepResult:
    """The answer to a :class:`~sampler_kernels.step.Step` of B requests, M emitted tokens in all.

    Attributes:
        token_ids: [M] int32, emitted tokens of request r at ``cu_tokens[r]:cu_tokens[r + 1]``.
        cu_tokens: [B+1] int32.
        num_accepted: [B] int32, draft tokens that stood and were kept.
        status: [B] uint8, :class:`Status`.
        seeds: [B] uint64, the seed used: the caller's, or the one that was given.
        finish_reason: [B] uint8, :class:`FinishReason`.
        lossy: [B] bool, whether the method changes the distribution.
        bad_row: [B] int32, the row behind INVALID_LOGITS, -1 elsewhere.
        logprobs: One entry for each mode that any request asked for.
        acceptance_probabilities: Flat float64, min(1, p/q) of the draft tokens up to the first rejection, for the
            requests that asked.
        cu_acceptance: [B+1] int32 prefix sum of them.
        backend: Name of the backend that ran the step.
        timings: Where the time went.
    """

    token_ids: NDArray[np.int32]
    cu_tokens: NDArray[np.int32]
    num_accepted: NDArray[np.int32]
    status: NDArray[np.uint8]
    seeds: NDArray[np.uint64]
    finish_reason: NDArray[np.uint8]
    lossy: NDArray[np.bool_]
    bad_row: NDArray[np.int32]
    logprobs: Mapping[LogprobsMode, ModeLogprobs] = field(default_factory=dict)
    acceptance_probabilities: NDArray[np.float64] | None = None
    cu_acceptance: NDArray[np.int32] | None = None
    backend: str = ""
    timings: Timings = field(default_factory=Timings)
