"""What a step answers: flat numpy columns, and a view for each request that slices them when it is read."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from sampler_client.params import LogprobsMode


class Status(enum.IntEnum):
    """What became of a request. Anything but OK emitted no token and left the other requests untouched."""

    OK = 1
    INVALID_LOGITS = 2
    """A row that the result depends on holds NaN or +inf, or nothing is left in it; ``bad_row`` says which."""
    INVALID_DRAFT_TOKEN = 3
    """A draft id in device memory lies outside its range."""


class FinishReason(enum.IntEnum):
    """Why a request's tokens end where they end."""

    NONE = 0
    STOP = 1
    """A stop id was emitted."""
    LENGTH = 2
    """``max_tokens`` was reached."""


_STATUSES = {status.value: status for status in Status}
_FINISH_REASONS = {reason.value: reason for reason in FinishReason}


@dataclass(eq=False, slots=True)
class Timing:
    """Time spent on a step in microseconds, measured by the server.

    Attributes:
        queue_us: From the arrival of the message to the start of its work on the device thread.
        upload_us: Bringing inputs to the device.
        device_us: The kernels, or the computation on the CPU.
        download_us: Bringing results back.
        total_us: From the arrival of the message to the result handed to the transport.
    """

    queue_us: float = 0.0
    upload_us: float = 0.0
    device_us: float = 0.0
    download_us: float = 0.0
    total_us: float = 0.0


@dataclass(eq=False, slots=True)
class Entries:
    """Tokens of one row with their values.

    Attributes:
        token_ids: [n] int32.
        values: [n] float32, logprobs (natural logarithm) or logits, by mode.
    """

    token_ids: NDArray[np.int32]
    values: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.token_ids)

    def pairs(self) -> list[tuple[int, float]]:
        """The entries as plain (id, value) pairs, in their order."""
        return list(zip(self.token_ids.tolist(), self.values.tolist(), strict=True))


@dataclass(eq=False, slots=True)
class EntriesByToken(Sequence[Entries]):
    """Some entries beside each of a run of emitted tokens, over flat columns.

    Attributes:
        cu: Prefix sum over the columns, one more than there are tokens; starts anywhere.
        token_ids: int32, ids of all entries of the step.
        values: float32, their values.
    """

    cu: NDArray[np.int32]
    token_ids: NDArray[np.int32]
    values: NDArray[np.float32]

    def __len__(self) -> int:
        return max(len(self.cu) - 1, 0)

    @overload
    def __getitem__(self, index: int) -> Entries: ...
    @overload
    def __getitem__(self, index: slice) -> EntriesByToken: ...
    def __getitem__(self, index: int | slice) -> Entries | EntriesByToken:
        """The entries beside one token; for a slice (step 1), the same over a shorter run of tokens."""
        if isinstance(index, slice):
            start, stop, stride = index.indices(len(self))
            if stride != 1:
                raise ValueError("entries are sliced in steps of 1")
            return self.between(start, max(start, stop))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        start, stop = self.cu[index % len(self) :][:2].tolist()
        return Entries(self.token_ids[start:stop], self.values[start:stop])

    def between(self, start: int, stop: int) -> EntriesByToken:
        """The run of tokens ``start..stop - 1``, without a check of the bounds."""
        return EntriesByToken(self.cu[start : stop + 1], self.token_ids, self.values)

    def __iter__(self) -> Iterator[Entries]:
        bounds = self.cu.tolist()
        for start, stop in pairwise(bounds):
            yield Entries(self.token_ids[start:stop], self.values[start:stop])


class Source(Protocol):
    """Where a result's columns come from; each is asked for at most once, when it is first read."""

    def column(self, name: str, dtype: type[np.generic]) -> NDArray[Any]:
        """A column of numbers by its name in the contract; empty where the server left it out."""

    def table(self, name: str, dtype: type[np.generic]) -> NDArray[Any]:
        """A column that the contract carries as bytes."""


class ModeLogprobs:
    """One mode's numbers for all M emitted tokens of a step. Columns are converted when they are first read."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @cached_property
    def values(self) -> NDArray[np.float32]:
        """[M] float32, of each emitted token; NaN where its request did not ask for the mode."""
        return self._source.column("values", np.float32)

    @cached_property
    def ranks(self) -> NDArray[np.int32] | None:
        """[M] int32, count of the row's logits >= the token's own (1 is the largest); 0 where not asked for.

        None if no request asked.
        """
        ranks = self._source.column("ranks", np.int32)
        return ranks if len(ranks) else None

    @cached_property
    def cumulative(self) -> NDArray[np.float64] | None:
        """[B] float64, sum of the request's values; NaN where it did not ask or its status is not OK.

        None in the logits modes.
        """
        cumulative = self._source.column("cumulative", np.float64)
        return cumulative if len(cumulative) else None

    @cached_property
    def top(self) -> EntriesByToken:
        """[M] the largest entries beside each token, descending, ties by lowest id, -inf left out."""
        return self._entries("top")

    @cached_property
    def chosen(self) -> EntriesByToken:
        """[M] the entries of ``logprob_token_ids`` beside each token, in that order, -inf included."""
        return self._entries("chosen")

    def _entries(self, kind: str) -> EntriesByToken:
        cu = self._source.column(f"cu_{kind}", np.int32)
        return EntriesByToken(
            cu if len(cu) else np.zeros(len(self.values) + 1, dtype=np.int32),
            self._source.table(f"{kind}_token_ids", np.int32),
            self._source.table(f"{kind}_values", np.float32),
        )


@dataclass(eq=False, slots=True)
class RequestLogprobs:
    """One mode's numbers for the n emitted tokens of one request; arrays are views of the step's columns.

    Attributes:
        values: [n] float32.
        ranks: [n] int32, 1-based; None if no request of the step asked, 0 if this one did not.
        cumulative: Sum of ``values`` in this step; None in the logits modes.
        top: [n] the largest entries beside each token, descending.
        chosen: [n] the entries of ``logprob_token_ids`` beside each token.
    """

    values: NDArray[np.float32]
    ranks: NDArray[np.int32] | None
    cumulative: float | None
    top: EntriesByToken
    chosen: EntriesByToken


class RequestResult:
    """One request's part of a :class:`StepResult`; arrays are views, sliced when they are read."""

    __slots__ = ("_index", "_start", "_step", "_stop")

    def __init__(self, step: StepResult, index: int, start: int, stop: int) -> None:
        self._step, self._index, self._start, self._stop = step, index, start, stop

    @property
    def token_ids(self) -> NDArray[np.int32]:
        """[n] int32, the emitted tokens: the draft tokens that stood and one final token, after any cut."""
        return self._step.token_ids[self._start : self._stop]

    @property
    def num_accepted(self) -> int:
        """Draft tokens that stood and were kept."""
        return self._step.num_accepted.item(self._index)

    @property
    def status(self) -> Status:
        """What became of the request."""
        return _STATUSES[self._step.status.item(self._index)]

    @property
    def seed(self) -> int:
        """The seed used, as given or as made by the server; with the same positions it replays the step."""
        return self._step.seeds.item(self._index)

    @property
    def finish_reason(self) -> FinishReason:
        """Why the tokens end where they end; NONE: the request goes on."""
        return _FINISH_REASONS[self._step.finish_reason.item(self._index)]

    @property
    def lossy(self) -> bool:
        """Whether the method changed the distribution."""
        return self._step.lossy.item(self._index)

    @property
    def bad_row(self) -> int | None:
        """The smallest bad row behind INVALID_LOGITS, else None."""
        row = self._step.bad_row.item(self._index)
        return None if row < 0 else row

    @property
    def logprobs(self) -> Mapping[LogprobsMode, RequestLogprobs]:
        """The modes that this request asked for; empty if it emitted nothing."""
        start, stop = self._start, self._stop
        found = {}
        for mode, step in self._step.logprobs.items():
            # No emitted token has the value NaN: a row with one is INVALID_LOGITS. So NaN says: not asked for.
            if start == stop or math.isnan(step.values.item(start)):
                continue
            found[mode] = RequestLogprobs(
                step.values[start:stop],
                None if step.ranks is None else step.ranks[start:stop],
                None if step.cumulative is None else step.cumulative.item(self._index),
                step.top.between(start, stop),
                step.chosen.between(start, stop),
            )
        return found

    @property
    def acceptance_probabilities(self) -> NDArray[np.float64] | None:
        """float64, min(1, p / q) of the draft tokens up to the first rejection; None if no request asked."""
        cu = self._step.cu_acceptance_probabilities
        if cu is None:
            return None
        return self._step.acceptance_probabilities[cu.item(self._index) : cu.item(self._index + 1)]


class StepResult:
    """The answer to a :class:`~sampler_client.step.Step` of B requests, M emitted tokens in all.

    Columns are converted when they are first read, so that an engine pays for what it uses.

    Args:
        source: The columns.
        logprobs: One entry for each mode that any request asked for.
        timing: Where the server's time went.
        backend: Backend that ran the step, ``"cpu"`` or ``"triton"``.
        version: Version of the server.
    """

    def __init__(
        self,
        source: Source,
        logprobs: Mapping[LogprobsMode, ModeLogprobs],
        timing: Timing,
        backend: str,
        version: str,
    ) -> None:
        self._source = source
        self.logprobs = logprobs
        self.timing = timing
        self.backend = backend
        self.version = version

    @cached_property
    def token_ids(self) -> NDArray[np.int32]:
        """[M] int32, the emitted tokens; those of request r at ``cu_tokens[r]:cu_tokens[r + 1]``."""
        return self._source.column("token_ids", np.int32)

    @cached_property
    def cu_tokens(self) -> NDArray[np.int32]:
        """[B+1] int32 prefix sum."""
        return self._source.column("cu_tokens", np.int32)

    @cached_property
    def num_accepted(self) -> NDArray[np.int32]:
        """[B] int32, draft tokens that stood and were kept."""
        return self._source.column("num_accepted", np.int32)

    @cached_property
    def status(self) -> NDArray[np.int32]:
        """[B] int32, :class:`Status`."""
        return self._source.column("status", np.int32)

    @cached_property
    def seeds(self) -> NDArray[np.uint64]:
        """[B] uint64, the seed used, as given or as made by the server."""
        return self._source.column("seed", np.uint64)

    @cached_property
    def finish_reason(self) -> NDArray[np.int32]:
        """[B] int32, :class:`FinishReason`."""
        return self._source.column("finish_reason", np.int32)

    @cached_property
    def lossy(self) -> NDArray[np.bool_]:
        """[B] bool, whether the method changed the distribution."""
        return self._source.column("lossy", np.bool_)

    @cached_property
    def bad_row(self) -> NDArray[np.int32]:
        """[B] int32, the row behind INVALID_LOGITS, -1 elsewhere."""
        return self._source.column("bad_row", np.int32)

    @cached_property
    def acceptance_probabilities(self) -> NDArray[np.float64]:
        """Flat float64, min(1, p / q) of draft tokens up to the first rejection, of the requests that asked."""
        return self._source.column("acceptance_probabilities", np.float64)

    @cached_property
    def cu_acceptance_probabilities(self) -> NDArray[np.int32] | None:
        """[B+1] int32 prefix sum over ``acceptance_probabilities``; None if no request asked."""
        cu = self._source.column("cu_acceptance_probabilities", np.int32)
        return cu if len(cu) else None

    @cached_property
    def requests(self) -> Sequence[RequestResult]:
        """[B] a view for each request, in the step's order."""
        return [RequestResult(self, index, *span) for index, span in enumerate(pairwise(self.cu_tokens.tolist()))]
