"""One step as an engine describes it: arrays and columns, nothing copied, nothing checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sampler_client.params import SamplingParams


class SupportsDLPack(Protocol):
    """An array of another library that hands its memory over by DLPack, such as a torch tensor."""

    @property
    def __dlpack__(self) -> Callable[..., Any]:
        """Exports the memory as a capsule."""

    @property
    def __dlpack_device__(self) -> Callable[..., Any]:
        """Says on which device the memory lies; it must be the CPU."""


Array = npt.ArrayLike | SupportsDLPack
"""A numpy array, anything with DLPack on the CPU, or (nested) lists of numbers."""

Ints = Sequence[int] | npt.NDArray[np.integer[Any]]
"""A column of integers, one for each request."""


@dataclass(frozen=True, eq=False)
class DraftBlock:
    """Draft logits of the requests that share a draft vocabulary.

    Attributes:
        logits: [rows, V_d] float32, float16 or bfloat16, raw. The block's requests take its rows in request order,
            k_r each.
        draft_id_map: [V_d] distinct target ids for a reduced vocabulary: column i is target id ``draft_id_map[i]``.
            None: column i is target id i.
    """

    logits: Array
    draft_id_map: Array | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class History:
    """Ids that came before, for all requests of a step; of each request as ids, as counts, or not at all.

    Attributes:
        token_ids: [sum of lengths] the ids of request 0, then of request 1, and so on; or [B, L], where the first
            ``lengths[r]`` ids of row r count.
        lengths: [B] ids of each request in ``token_ids``.
        sparse_token_ids: [sum of sparse_lengths] distinct ids, for requests whose order of ids does not matter.
        sparse_counts: [sum of sparse_lengths] how often each of them occurred.
        sparse_lengths: [B] (id, count) pairs of each request.
        kept_histories: [B] id of the kept history that each request continues, 0 for none; only in a stream or
            session that keeps state.
        kept_lengths: [B] how many ids of the kept history still stand; what lies beyond is dropped, then the
            request's ids of ``token_ids`` are appended.
    """

    token_ids: Array | None = None
    lengths: Ints = ()
    sparse_token_ids: Array | None = None
    sparse_counts: Array | None = None
    sparse_lengths: Ints = ()
    kept_histories: Ints = ()
    kept_lengths: Ints = ()

    @staticmethod
    def of(rows: Sequence[Ints]) -> History:
        """Lays one list of ids per request end to end.

        Args:
            rows: [B] lists or one-dimensional integer arrays; an empty one for a request without history.

        Returns:
            A history of ids, int64 unless every row is an int32 array.
        """
        arrays = [row if isinstance(row, np.ndarray) else np.asarray(row, dtype=np.int64) for row in rows]
        flat = np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)
        return History(token_ids=flat, lengths=[len(row) for row in arrays])


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """A batch of B >= 1 requests to verify together; request r has k_r draft tokens and k_r + 1 target rows.

    Everything is ordered by request. N is the number of target rows in all, V the size of the target vocabulary.

    Attributes:
        target_logits: [N, V] float32, float16 or bfloat16, row stride free. Row j of a request scores the token that
            follows j draft tokens. -inf is legal.
        draft_lengths: [B] k_r of each request, 0..128.
        draft_token_ids: [sum of k_r] target ids; -1 where no token was drawn. May be None if no request has drafts.
        draft_blocks: Draft logits, one block for each draft vocabulary, all of one dtype. Empty: every draft is a
            point mass on its token.
        draft_block_index: [B] block of each request, -1 for none. None: block 0 for all if there is exactly one.
        params: The distinct parameter sets of the batch. Empty: the defaults for all.
        params_index: [B] which set each request uses. None: the first for all.
        seeds: [B] 64-bit seeds, None for a request that shall be given one. None: all are given one.
        positions: [B] absolute index in its sequence of the token that the request's first row predicts. A seed
            without it is refused; without both it is 0.
        num_output_tokens: [B] tokens output before this step, -1 for the length of the output history. None: that
            length for all.
        prompt_token_ids: Prompts, for the repetition penalty and bad words.
        output_token_ids: Outputs before this step, the last emitted token included.
        token_bitmask: [R, ceil(V / 32)] int32: bit i % 32 of word i / 32 allows id i.
        token_bitmask_index: [B] mask of each request, or [N] of each target row; -1 for none. None: R is B or N, and
            mask i belongs to request i or to row i.
        target_logsumexp: [N] float64 log-sum-exp of each target row divided by its temperature, if known.
        has_target_logsumexp: [B] for which requests ``target_logsumexp`` holds. None: for all, if it is given.
        draft_logsumexp: float64, the same for the rows of draft logits in request order, k_r for each request that has
            draft logits.
        has_draft_logsumexp: [B] for which requests ``draft_logsumexp`` holds. None: for all, if it is given.
    """

    target_logits: Array
    draft_lengths: Ints
    draft_token_ids: Array | None = None
    draft_blocks: Sequence[DraftBlock] = ()
    draft_block_index: Ints | None = None
    params: Sequence[SamplingParams] = ()
    params_index: Ints | None = None
    seeds: Sequence[int | None] | npt.NDArray[np.integer[Any]] | None = None
    positions: Ints | None = None
    num_output_tokens: Ints | None = None
    prompt_token_ids: History | None = None
    output_token_ids: History | None = None
    token_bitmask: Array | None = None
    token_bitmask_index: Ints | None = None
    target_logsumexp: Array | None = None
    has_target_logsumexp: Sequence[bool] | None = None
    draft_logsumexp: Array | None = None
    has_draft_logsumexp: Sequence[bool] | None = None

    @property
    def idempotent(self) -> bool:
        """Whether sending it twice gives the same result: every request carries its own seed."""
        seeds = self.seeds
        return seeds is not None and len(seeds) == len(self.draft_lengths) and all(seed is not None for seed in seeds)
