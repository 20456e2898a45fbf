"""Short ways to write a request down in a test."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tests.oracle.margins import Margins
from tests.oracle.methods import Stage
from tests.oracle.processing import ProcessedRow
from tests.oracle.ranges import check_request
from tests.oracle.request import Floats, Json, Logits, Params, Request
from tests.oracle.rows import DraftRow, FullDraft, FullTarget, PointMass
from tests.oracle.step import Outcome, verify_request
from tests.oracle.step_file import round_logits


def logs(*rows: Sequence[float]) -> Logits:
    """Rows of logits whose softmax is the given probabilities."""
    return round_logits([[math.log(x) if x > 0 else -math.inf for x in row] for row in rows], "float32")


def rows(*values: Sequence[float]) -> Logits:
    """Rows of fp32 logits."""
    return np.array(values, dtype=np.float32)


def request(
    target: Logits,
    drafts: Sequence[int] = (),
    draft: Logits | None = None,
    id_map: Sequence[int] | None = None,
    **params: Json,
) -> Request:
    """A checked request."""
    made = Request(target.shape[1], target, tuple(drafts), Params(**params), draft, id_map)
    check_request(made)
    return made


def run(
    target: Logits,
    drafts: Sequence[int] = (),
    draft: Logits | None = None,
    id_map: Sequence[int] | None = None,
    **params: Json,
) -> Outcome:
    """The outcome of a checked request."""
    return verify_request(request(target, drafts, draft, id_map, **params))


def target_row(p: Sequence[float] | Floats) -> FullTarget:
    """A processed row at temperature 1 whose distribution is exactly `p`."""
    masses = np.asarray(p, dtype=np.float64)
    with np.errstate(divide="ignore"):
        adjusted = np.log(masses).astype(np.float32)
    return FullTarget(ProcessedRow(adjusted, masses > 0, 1.0, masses))


def stage(
    p: Sequence[Sequence[float]],
    q: Sequence[Sequence[float]] | None,
    drafts: Sequence[int],
    accept: Sequence[float] = (),
    draw: Sequence[float] = (),
) -> Stage:
    """What a method sees, with the rows' distributions (q None: point masses) and the uniforms by row written down."""

    def draft(j: int) -> DraftRow:
        return PointMass(drafts[j]) if q is None else FullDraft(np.asarray(q[j], dtype=np.float64))

    return Stage(
        drafts=drafts,
        target=lambda j: target_row(p[j]),
        draft=draft,
        accept_uniform=lambda j: accept[j],
        draw_uniform=lambda j: draw[j] if len(draw) > j else 0.5,
        margins=Margins(),
    )
