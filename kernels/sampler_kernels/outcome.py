"""What the operations hand to one another. Same fields, shapes and dtypes on every backend."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class RowStats:
    """One pass over R rows, cut into tiles and groups (``layout``). Every field is associative over tiles.

    The mass of a tile is relative to the tile's own maximum: ``tile_sum = sum exp((x - tile_max) / T)``. Rows are
    combined by the consumer in float64, so vocabulary shards can be joined by concatenating their tiles.

    Attributes:
        tile_max: [R, tiles] float32, on the row as it came; NaN if the tile holds NaN or +inf; -inf past the row's
            end or where nothing is left.
        tile_sum: [R, tiles] float32, at the row's temperature (1 for rows of temperature 0).
        tile_raw_sum: [R, tiles] float32, at temperature 1; None where no raw log-sum-exp is wanted.
        tile_argmax: [R, tiles] int32, lowest id that reaches ``tile_max``.
        group_max: [R, groups] float32.
        raw_tile_max: [R, tiles] float32, of the rows as the client gave them; None where these are no others, or where
            no raw numbers are wanted.
        raw_group_max: [R, groups] float32, likewise.
        temperature: [R] float64, what the rows were summed at; None where whoever reads this knows anyway.
    """

    tile_max: Tensor
    tile_sum: Tensor
    tile_raw_sum: Tensor | None
    tile_argmax: Tensor
    group_max: Tensor
    raw_tile_max: Tensor | None = None
    raw_group_max: Tensor | None = None
    temperature: Tensor | None = None


class DrawKind(enum.IntEnum):
    """Where the last emitted token of a request comes from."""

    NOTHING = 0
    """The request failed; it emits no token."""
    ARGMAX = 1
    TARGET = 2
    """p of the row: the bonus row, a placeholder, or a residual without mass."""
    RESIDUAL = 3
    """norm(max(scale * p - q, 0)); q is the draft row, or a point mass on the rejected token where there is none."""


@dataclass(frozen=True, eq=False)
class Decision:
    """What the accept tests decided, before the final token is drawn.

    Attributes:
        num_accepted: [B] int32, t: draft tokens that stand.
        status: [B] int32, :class:`~sampler_kernels.result.Status`.
        bad_row: [B] int32, -1 unless the status is INVALID_LOGITS.
        draw_kind: [B] int32, :class:`DrawKind`.
        scale: [B] float64, factor of p in the residual (1 but for block verification).
        acceptance: [D] float64, min(1, p/q) of the draft tokens up to the first that did not stand, of the requests
            that want it; NaN elsewhere. None where no request does.
    """

    num_accepted: Tensor
    status: Tensor
    bad_row: Tensor
    draw_kind: Tensor
    scale: Tensor
    acceptance: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Cut:
    """What stop ids and limits of length leave of the emitted tokens.

    Attributes:
        emitted: [N] int32, emitted tokens in row order, -1 elsewhere.
        kept: [B] int32, how many of them each request emits.
        finish_reason: [B] int32, :class:`~sampler_kernels.result.FinishReason`.
    """

    emitted: Tensor
    kept: Tensor
    finish_reason: Tensor


@dataclass(frozen=True, eq=False)
class TopLogits:
    """What every logprobs mode of emitted tokens is made from, of one view of the rows: raw or processed.

    Row by row of the target table; rows without a token hold garbage. A logprob is logit / T - log_sum_exp, T being 1
    in the raw view.

    Attributes:
        logits: [N] float32, of the emitted token, before temperature; -inf where a mask or filter dropped it.
        log_sum_exp: [N] float64, ln of the sum of exp(x / T).
        ranks: [N] int32, count of the row's entries >= the token's own.
        top_ids: [N, n] int32, n the largest wish of the batch, descending by value, ties by lowest id; -1 where the
            row has no further entry above -inf.
        top_logits: [N, n] float32.
        chosen_logits: [N, c] float32, of the ids listed by the request.
    """

    logits: Tensor
    log_sum_exp: Tensor
    ranks: Tensor
    top_ids: Tensor
    top_logits: Tensor
    chosen_logits: Tensor
