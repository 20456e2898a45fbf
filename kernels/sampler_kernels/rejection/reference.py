"""The accept tests. Most methods go row by row over the requests that are still alive; block sees a request at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sampler_kernels.batch import Batch, MethodCode
from sampler_kernels.elements import Ints
from sampler_kernels.outcome import Decision, DrawKind, RowStats
from sampler_kernels.rejection.acceptance import acceptance
from sampler_kernels.rejection.block import block
from sampler_kernels.rejection.rules import RULES
from sampler_kernels.rejection.verdicts import Verdicts
from sampler_kernels.rejection.waves import Bools, Columns, Wave
from sampler_kernels.stats.reference import LazyRowStats
from sampler_kernels.stats.temperatures import draft_temperature, target_temperature
from sampler_kernels.threads import one_thread


@one_thread()
def rejection(batch: Batch, target_stats: RowStats | LazyRowStats, draft_stats: RowStats | LazyRowStats) -> Decision:
    """Decides which draft tokens stand.

    Only needed rows are asked for: of a request of method block all up to its first placeholder, of any other row j
    if its first j draft tokens stood, and the draft row beside it where there is a token to compare. So the first bad
    row met is the smallest needed one that is bad. Where log-sum-exps are supplied, single logits stand for rows.

    Args:
        batch: The step.
        target_stats: Of ``batch.target``, at each row's temperature.
        draft_stats: Of ``batch.draft``, at each row's draft temperature.

    Returns:
        One line a request. A request with a bad row or a bad draft id accepts nothing and draws nothing.
    """
    rows = LazyRowStats.of(target_stats, batch.target, lambda: target_temperature(batch))
    draft_rows = LazyRowStats.of(draft_stats, batch.draft, lambda: draft_temperature(batch))
    columns = Columns.of(batch)
    method = batch.method.numpy()
    verdicts = Verdicts.blank(len(method))
    illegal = _with_illegal_id(batch)
    verdicts.illegal_ids(illegal.nonzero()[0])
    for code in sorted(set(method.tolist())):
        request = ((method == code) & ~illegal).nonzero()[0]
        if code == MethodCode.BLOCK and len(request):
            block(columns, rows, draft_rows, request, verdicts)
        elif len(request):
            _row_by_row(MethodCode(code), columns, rows, draft_rows, request, verdicts)
    return verdicts.decision(acceptance(columns, rows, draft_rows, verdicts))


def _row_by_row(
    code: MethodCode,
    columns: Columns,
    rows: LazyRowStats,
    draft_rows: LazyRowStats,
    request: Ints,
    verdicts: Verdicts,
) -> None:
    """Judges requests of one method, row j of all of them together, until each has met a token that falls."""
    batch, rule = columns.batch, RULES[code]
    own_law = np.where(batch.temperature.numpy() == 0, int(DrawKind.ARGMAX), int(DrawKind.TARGET))
    first_row = batch.cu_num_logits.numpy()[:-1].astype(np.int64)
    j = 0
    while len(request):
        wave = Wave.of(columns, rows, draft_rows, first_row[request] + j)
        stands = _stand(wave, rule)
        kind = own_law[request]
        if code is MethodCode.STANDARD:  # the others draw from p, or take the argmax
            kind = np.where(wave.token >= 0, int(DrawKind.RESIDUAL), kind)
        bad = wave.bad
        if rows.supplied or draft_rows.supplied:  # a row that is drawn from is read, and may not be as it was said
            bad = bad | wave.contradicted(~stands & ~bad)
        ends = ~stands & ~bad
        verdicts.accept(request[ends], j, kind[ends])
        if bad.any():
            verdicts.bad_rows(request[bad], j)
        request = request[stands]
        j += 1


def _stand(wave: Wave, rule: Callable[[Wave], Bools]) -> Bools:
    """[n], which tokens stand: none at a bad row, none that was not drawn or is past the vocabulary."""
    stands = (wave.token >= 0) & (wave.token < wave.columns.batch.vocab_size) & ~wave.bad
    if stands.any():
        stands[stands] = rule(wave.only(stands))
    return stands


def _with_illegal_id(batch: Batch) -> Bools:
    """[B]: requests with a draft id marked as outside its range."""
    illegal = np.zeros(len(batch.draft_lengths), np.bool_)
    outside = (batch.draft_token_ids.numpy() < -1).nonzero()[0]
    # The request of a draft position is the last one that starts at or before it.
    illegal[batch.cu_drafts.numpy().searchsorted(outside, side="right") - 1] = True
    return illegal
