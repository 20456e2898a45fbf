"""What is reported of each emitted token: values, ranks, top lists, chosen ids and cumulative sums, in four modes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.oracle.processing import ProcessedRow, log_sum_exp, order
from tests.oracle.request import Floats, Logits, Params

Entry = tuple[int, float]
"""(token id, value)."""


@dataclass(frozen=True)
class ModeReport:
    """One mode's report, a list entry per emitted token; cumulative is None in the logits modes."""

    tokens: list[float] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    cumulative: float | None = None
    top: list[list[Entry]] = field(default_factory=list)
    chosen: list[list[Entry]] = field(default_factory=list)


@dataclass(frozen=True)
class EmittedRow:
    """The row an emitted token came from; logsumexp as supplied (of row / temperature), or None."""

    token_id: int
    raw: Logits
    processed: ProcessedRow
    logsumexp: float | None


def report(mode: str, rows: Sequence[EmittedRow], params: Params) -> ModeReport:
    """The report of one mode over the emitted tokens that a stop or length cut left."""
    tokens: list[float] = []
    ranks: list[int] = []
    top: list[list[Entry]] = []
    chosen: list[list[Entry]] = []
    for row in rows:
        values, key = _values(mode, row), _order_key(mode, row)
        tokens.append(float(values[row.token_id]))
        if params.ranks:
            ranks.append(int(np.sum(key >= key[row.token_id])))
        ids = order(key)[: params.top_logprobs].tolist() if params.top_logprobs else []
        best = [i for i in ids if key[i] > -np.inf]
        top.append([(i, float(values[i])) for i in best])
        chosen.append([(i, float(values[i])) for i in params.logprob_token_ids])
    cumulative = math.fsum(tokens) if mode.endswith("logprobs") else None
    return ModeReport(tokens, ranks, cumulative, top, chosen)


def _values(mode: str, row: EmittedRow) -> Floats:
    """[V] natural logarithms, or logits, in fp64."""
    raw = row.raw.astype(np.float64)
    match mode:
        case "raw_logits":
            return raw
        case "processed_logits":
            return row.processed.logits
        case "raw_logprobs":
            # A supplied log-sum-exp is of row / temperature, and comes with this mode only at temperature 1.
            return raw - (log_sum_exp(row.raw, 1.0) if row.logsumexp is None else row.logsumexp)
        case "processed_logprobs":
            if row.logsumexp is not None:
                return row.processed.logits - row.logsumexp
            return row.processed.logits - log_sum_exp(row.processed.order_key, row.processed.temperature)
    raise ValueError(mode)


def _order_key(mode: str, row: EmittedRow) -> Logits:
    """[V] what ranks and top lists go by: fp32 logits before temperature."""
    return row.raw if mode.startswith("raw") else row.processed.order_key
