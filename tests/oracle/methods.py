"""The seven ways to decide how many draft tokens stand and which token follows them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.oracle.margins import Margins
from tests.oracle.request import Floats, Params
from tests.oracle.rows import DraftRow, TargetRow


@dataclass(frozen=True)
class Stage:
    """What a method sees of one request. `drafts` are the ids before the first placeholder.

    target(j), draft(j): the rows, read (and checked) when asked for. accept_uniform(j): the uniform of the decision
    on the draft token at row j. draw_uniform(j): the uniform of the draw at row j.
    """

    drafts: Sequence[int]
    target: Callable[[int], TargetRow]
    draft: Callable[[int], DraftRow]
    accept_uniform: Callable[[int], float]
    draw_uniform: Callable[[int], float]
    margins: Margins


@dataclass(frozen=True)
class Decision:
    """How many draft tokens stand, before any stop or length cut, and the final token, which belongs to that row."""

    accepted: int
    final_token: int


def decide(stage: Stage, params: Params) -> Decision:
    """Dispatch on method; at temperature 0 every lossless method is greedy."""
    if params.method == "synthetic":
        return _while_accepted(stage, params, _synthetic)
    if params.method == "typical":
        return _while_accepted(stage, params, _typical)
    if params.method == "relaxed":
        return _while_accepted(stage, params, _relaxed)
    if params.temperature == 0.0:
        return greedy(stage)
    return {"standard": standard, "strict": strict, "block": block}[params.method](stage)


def greedy(stage: Stage) -> Decision:
    """Accept while the draft token is the argmax; emit the first argmax that differs, or that of the bonus row."""
    for j, draft_token in enumerate(stage.drafts):
        best = argmax(stage.target(j))
        if draft_token != best:
            return Decision(j, best)
    last = len(stage.drafts)
    return Decision(last, argmax(stage.target(last)))


def standard(stage: Stage) -> Decision:
    """Leviathan et al. 2211.17192, Chen et al. 2302.01318: accept x iff u q(x) < p(x), else draw from the residual."""
    for j, x in enumerate(stage.drafts):
        target, draft = stage.target(j), stage.draft(j)
        p, q, u = target.mass(x), draft.mass(x), stage.accept_uniform(j)
        if q > 0.0:
            stage.margins.add("accept", j, u - p / q)
        if not u * q < p:
            return Decision(j, draw_residual(stage, j, target, draft, 1.0))
    last = len(stage.drafts)
    return Decision(last, draw(stage, last, stage.target(last).p))


def strict(stage: Stage) -> Decision:
    """Sample and match: draw from p at every row until the drawn token differs from the draft."""
    for j, x in enumerate(stage.drafts):
        y = draw(stage, j, stage.target(j).p)
        if y != x:
            return Decision(j, y)
    last = len(stage.drafts)
    return Decision(last, draw(stage, last, stage.target(last).p))


def block(stage: Stage) -> Decision:
    """Sun et al. 2403.10444: the longest prefix whose own test passes, whatever the tests before it said."""
    k = len(stage.drafts)
    targets: list[TargetRow] = []
    drafts: list[DraftRow] = []
    for j in range(k + 1):  # every row is needed, and a lower bad row is found before a higher one
        targets.append(stage.target(j))
        if j < k:
            drafts.append(stage.draft(j))

    c = [1.0]
    slack = [0.0]  # by how much the minimum clipped c_i, for its margin
    for i in range(1, k + 1):
        x = stage.drafts[i - 1]
        unclipped = _times_ratio(c[i - 1], targets[i - 1].mass(x), drafts[i - 1].mass(x))
        c.append(min(1.0, unclipped))
        slack.append(max(0.0, unclipped - 1.0))

    accepted = 0
    for i in range(k, 0, -1):  # the largest i that passes; what lower ones say no longer matters
        u = stage.accept_uniform(i - 1)
        if i == k:
            h = c[k]
            stage.margins.add("block accept", i - 1, u - h if c[k] < 1.0 else max(1.0 - u, slack[k]))
        else:
            s = float(np.sum(drafts[i].residual(targets[i].p, c[i])))
            denominator = s + 1.0 - c[i]
            h = 1.0 if denominator == 0.0 else s / denominator
            # u < S / (S + 1 - c) compared as masses, in which S is good to 1e-6; at c = 1 it passes for any S.
            distance = s - u * denominator
            stage.margins.add("block accept", i - 1, distance if c[i] < 1.0 else max(distance, slack[i]))
        if u < h:
            accepted = i
            break
    if accepted == k:
        return Decision(k, draw(stage, k, targets[k].p))
    return Decision(accepted, draw_residual(stage, accepted, targets[accepted], drafts[accepted], c[accepted]))


def _times_ratio(c: float, p: float, q: float) -> float:
    """The product c p / q, where p = 0 gives 0, q = 0 gives infinity, and c = 0 stays 0."""
    if c == 0.0 or p == 0.0:
        return 0.0
    return math.inf if q == 0.0 else c * (p / q)


_Test = Callable[[Stage, Params, int, TargetRow], bool]


def _while_accepted(stage: Stage, params: Params, accepts: _Test) -> Decision:
    """Accept while the test holds and the id is in the vocabulary; the final token comes from p, or is its argmax."""
    j = 0
    row = stage.target(0)
    while j < len(stage.drafts):
        in_vocabulary = stage.drafts[j] < len(row.p)
        if not (in_vocabulary and accepts(stage, params, j, row)):
            break
        j += 1
        row = stage.target(j)
    return Decision(j, argmax(row) if params.temperature == 0.0 else draw(stage, j, row.p))


def _synthetic(stage: Stage, params: Params, j: int, _row: TargetRow) -> bool:
    """Acceptance at a given rate, whatever the logits say."""
    assert params.synthetic_rates is not None
    return stage.accept_uniform(j) < params.synthetic_rates[j]


def _typical(stage: Stage, params: Params, j: int, row: TargetRow) -> bool:
    """Medusa, 2401.10774: accept what is likely by an entropy-dependent threshold. Entropy in nats."""
    p = row.p
    positive = p[p > 0.0]
    entropy = -float(np.sum(positive * np.log(positive)))
    threshold = min(params.typical_epsilon, params.typical_delta * math.exp(-entropy))
    stage.margins.add("typical", j, float(p[stage.drafts[j]]) - threshold)
    return float(p[stage.drafts[j]]) > threshold


def _relaxed(stage: Stage, params: Params, j: int, row: TargetRow) -> bool:
    """Accept what is among the top n and within a margin of the best, in processed logits."""
    assert params.relaxed_top_n is not None
    assert params.relaxed_margin is not None
    processed = row.processed
    x = stage.drafts[j]
    if not processed.kept[x]:
        return False
    key = processed.order_key
    rank = int(np.sum(key >= key[x]))
    below_best = float(np.max(processed.logits)) - float(processed.logits[x])
    if params.temperature not in (0.0, 1.0) and x != argmax(row):
        # Without a division both sides are exact.
        stage.margins.add("relaxed", j, below_best - params.relaxed_margin)
    return rank <= params.relaxed_top_n and below_best <= params.relaxed_margin


def argmax(row: TargetRow) -> int:
    """The lowest id among the largest masked, biased and penalised logits."""
    return int(np.argmax(row.processed.adjusted))


def draw_residual(stage: Stage, row: int, target: TargetRow, draft: DraftRow, c: float) -> int:
    """Draw from norm(max(c p - q, 0)), or from p where rounding left the residual no mass."""
    p = target.p
    residual = draft.residual(p, c)
    total = float(np.sum(residual))
    stage.margins.add("residual mass", row, total)
    return draw(stage, row, residual if total > 0.0 else p)


def draw(stage: Stage, row: int, masses: Floats) -> int:
    """Inverse CDF in id order: the smallest id whose inclusive prefix mass exceeds u times the total.

    The margin is in mass, not normalised: residual masses are good to 1e-6 absolute, however small their total.
    """
    ids = np.flatnonzero(masses > 0.0)  # a token without mass is never drawn
    prefix = np.cumsum(masses[ids])
    total = float(prefix[-1])
    wanted = stage.draw_uniform(row) * total
    place = min(int(np.searchsorted(prefix, wanted, side="right")), len(ids) - 1)
    inner_edges = prefix[:-1]  # below the first and above the last token there is nothing to fall to
    if len(inner_edges):
        stage.margins.add("draw", row, float(np.min(np.abs(inner_edges - wanted))))
    return int(ids[place])
