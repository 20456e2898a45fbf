"""What a step answers: flat numpy columns, and a view for each request that slices them when it is read."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import overload

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


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
class ModeLogprobs:
    """One mode's numbers for all M emitted tokens of a step.

    Attributes:
        values: [M] float32, of each emitted token; NaN where its request did not ask for the mode.
        ranks: [M] int32, count of logits of the row that are >= the token's own (1 is the largest); 0 where not asked
            for. None if no request asked.
        cumulative: [B] float64, sum of the request's values; NaN where it did not ask or its status is not OK. None in
            the logits modes.
        top: [M] the largest entries beside each token, descending, ties by lowest id, -inf left out.
        chosen: [M] the entries of ``logprob_token_ids`` beside each token, in that order, -inf included.
    """

    values: NDArray[np.float32]
    ranks: NDArray[np.int32] | None
    cumulative: NDArray[np.float64] | None
    top: EntriesByToken
    chosen: EntriesByToken


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


@dataclass(frozen=True, eq=False)
class StepResult:
    """The answer to a :class:`~sampler_client.step.Step` of B requests, M emitted tokens in all.

    Attributes:
        token_ids: [M] int32, those of request r at ``cu_tokens[r]:cu_tokens[r + 1]``.
        cu_tokens: [B+1] int32.
        num_accepted: [B] int32, draft tokens that stood and were kept.
        status: [B] int32, :class:`Status`.
        seeds: [B] uint64, the seed used.
        finish_reason: [B] int32, :class:`FinishReason`.
        lossy: [B] bool, whether the method changed the distribution.
        bad_row: [B] int32, the row behind INVALID_LOGITS, -1 elsewhere.
        logprobs: One entry for each mode that any request asked for.
        acceptance_probabilities: Flat float64, empty if no request asked.
        cu_acceptance_probabilities: [B+1] int32 prefix sum of them; None if no request asked.
        timing: Where the server's time went.
        backend: Backend that ran the step, ``"cpu"`` or ``"triton"``.
        version: Version of the server.
    """

    token_ids: NDArray[np.int32]
    cu_tokens: NDArray[np.int32]
    num_accepted: NDArray[np.int32]
    status: NDArray[np.int32]
    seeds: NDArray[np.uint64]
    finish_reason: NDArray[np.int32]
    lossy: NDArray[np.bool_]
    bad_row: NDArray[np.int32]
    logprobs: Mapping[LogprobsMode, ModeLogprobs]
    acceptance_probabilities: NDArray[np.float64]
    cu_acceptance_probabilities: NDArray[np.int32] | None
    timing: Timing = field(default_factory=Timing)
    backend: str = ""
    version: str = ""

    @cached_property
    def requests(self) -> Sequence[RequestResult]:
        """[B] a view for each request, in the step's order."""
        bounds = self.cu_tokens.tolist()
        spans = pairwise(bounds)
        return [RequestResult(self, index, start, stop) for index, (start, stop) in enumerate(spans)]
