"""The rows a method reads, each checked when it is read: target rows as p, draft rows as q."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tests.oracle.margins import Margins
from tests.oracle.processing import ProcessedRow, adjust, log_sum_exp, process_row, softmax
from tests.oracle.request import Floats, Logits, Request

LOGSUMEXP_TOLERANCE = 1e-3


class BadRow(Exception):
    """A needed target or draft row holds NaN or +inf, or nothing at all: the request is INVALID_LOGITS."""

    def __init__(self, row: int) -> None:
        super().__init__(f"row {row}")
        self.row = row


class TargetRow(Protocol):
    """p at one row. `mass(x)` is p(x), 0 for ids beyond the vocabulary; `p` [V] reads the whole row."""

    @property
    def p(self) -> Floats: ...

    @property
    def processed(self) -> ProcessedRow: ...

    def mass(self, token_id: int) -> float: ...


class DraftRow(Protocol):
    """q at one row, in target ids. `residual(p, c)` [V] is max(c * p - q, 0)."""

    def mass(self, token_id: int) -> float: ...

    def residual(self, p: Floats, c: float) -> Floats: ...


@dataclass(frozen=True)
class FullTarget:
    """A target row that is read and processed whole."""

    processed: ProcessedRow

    @property
    def p(self) -> Floats:
        return self.processed.p

    def mass(self, token_id: int) -> float:
        p = self.processed.p
        return float(p[token_id]) if token_id < len(p) else 0.0


@dataclass(frozen=True)
class GatheredTarget:
    """A target row with a supplied log-sum-exp: single logits are gathered, and `p` reads (and checks) the row."""

    logits: Logits
    temperature: float
    logsumexp: float
    row: int
    margins: Margins

    def mass(self, token_id: int) -> float:
        if token_id >= len(self.logits):
            return 0.0
        return _gathered_mass(self.logits, token_id, self.temperature, self.logsumexp, self.row)

    @property
    def p(self) -> Floats:
        _check_whole(self.logits, self.temperature, self.logsumexp, self.row, self.margins)
        return np.exp(self.logits.astype(np.float64) / self.temperature - self.logsumexp)

    @property
    def processed(self) -> ProcessedRow:
        p = np.exp(self.logits.astype(np.float64) / self.temperature - self.logsumexp)
        return ProcessedRow(self.logits, self.logits > -np.inf, self.temperature, p)


@dataclass(frozen=True)
class PointMass:
    """A draft token that was sampled without draft logits, or at draft temperature 0."""

    token_id: int

    def mass(self, token_id: int) -> float:
        return 1.0 if token_id == self.token_id else 0.0

    def residual(self, p: Floats, c: float) -> Floats:
        rest = c * p
        if self.token_id < len(rest):
            rest[self.token_id] = 0.0
        return rest


@dataclass(frozen=True)
class FullDraft:
    """A draft row read whole; q is [V_d], or [V] where an id map scattered it."""

    q: Floats

    def mass(self, token_id: int) -> float:
        return float(self.q[token_id]) if token_id < len(self.q) else 0.0

    def residual(self, p: Floats, c: float) -> Floats:
        return np.maximum(c * p - _fit(self.q, len(p)), 0.0)


@dataclass(frozen=True)
class GatheredDraft:
    """A draft row with a supplied log-sum-exp; `residual` reads (and checks) the whole row."""

    request: Request
    logits: Logits
    temperature: float
    logsumexp: float
    row: int
    margins: Margins

    def mass(self, token_id: int) -> float:
        id_map = self.request.draft_id_map
        column = token_id if id_map is None else list(id_map).index(token_id)
        return _gathered_mass(self.logits, column, self.temperature, self.logsumexp, self.row)

    def residual(self, p: Floats, c: float) -> Floats:
        _check_whole(self.logits, self.temperature, self.logsumexp, self.row, self.margins)
        columns = np.exp(self.logits.astype(np.float64) / self.temperature - self.logsumexp)
        return np.maximum(c * p - _fit(to_target_ids(self.request, columns), len(p)), 0.0)


def read_target(request: Request, row: int, margins: Margins) -> TargetRow:
    """Target row `row`, or BadRow."""
    raw = request.target_logits[row]
    supplied = request.params.target_logsumexp
    if supplied is not None:
        _check_chosen(request, row)
        return GatheredTarget(raw, request.params.temperature, supplied[row], row, margins)
    if _has_nan_or_inf(raw):
        raise BadRow(row)
    adjusted = adjust(request, row)
    # Finite penalties may still overflow fp32; that row cannot be sampled from either.
    if _has_nan_or_inf(adjusted) or not np.any(adjusted > -np.inf):
        raise BadRow(row)
    return FullTarget(process_row(request, row, margins))


def read_draft(request: Request, row: int, margins: Margins) -> DraftRow:
    """What the draft token at `row` was sampled from, or BadRow."""
    if request.point_mass or request.draft_logits is None:
        return PointMass(request.draft_token_ids[row])
    logits, temperature = request.draft_logits[row], request.draft_temperature
    supplied = request.params.draft_logsumexp
    if supplied is not None:
        return GatheredDraft(request, logits, temperature, supplied[row], row, margins)
    if _has_nan_or_inf(logits) or not np.any(logits > -np.inf):
        raise BadRow(row)
    return FullDraft(to_target_ids(request, softmax(logits, temperature)))


def to_target_ids(request: Request, columns: Floats) -> Floats:
    """Masses by draft column -> by target id: the columns themselves, or scattered [V] through the id map."""
    if request.draft_id_map is None:
        return columns
    by_id = np.zeros(request.vocab_size)
    by_id[list(request.draft_id_map)] = columns
    return by_id


def _fit(q: Floats, length: int) -> Floats:
    """Fit q to exactly the ids of the target: cut where the draft has more of them, with zeros where it has fewer."""
    fitted = np.zeros(length)
    fitted[: min(length, len(q))] = q[:length]
    return fitted


def _has_nan_or_inf(logits: Logits) -> bool:
    return bool(np.any(np.isnan(logits)) or np.any(logits == np.inf))


def _check_chosen(request: Request, row: int) -> None:
    """Logits that are gathered only to be reported must be readable too."""
    if _has_nan_or_inf(request.target_logits[row][list(request.params.logprob_token_ids)]):
        raise BadRow(row)


def _gathered_mass(logits: Logits, column: int, temperature: float, logsumexp: float, row: int) -> float:
    x = float(logits[column])
    if math.isnan(x) or x == math.inf or not math.isfinite(logsumexp):
        raise BadRow(row)
    with np.errstate(over="ignore"):
        return float(np.exp(x / temperature - logsumexp))


def _check_whole(logits: Logits, temperature: float, logsumexp: float, row: int, margins: Margins) -> None:
    """A row that is read whole must be sound, and must agree with the log-sum-exp supplied for it."""
    if _has_nan_or_inf(logits) or not np.any(logits > -np.inf) or not math.isfinite(logsumexp):
        raise BadRow(row)
    disagreement = abs(log_sum_exp(logits, temperature) - logsumexp)
    margins.add("logsumexp", row, disagreement - LOGSUMEXP_TOLERANCE)
    if disagreement > LOGSUMEXP_TOLERANCE:
        raise BadRow(row)
