"""What a parameter set comes to, once defaults and special cases are resolved, and what a batch wants reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from sampler_kernels.batch import MethodCode
from sampler_kernels.params import LogprobsMode, Method, SamplingParams

_CODES = {
    Method.STANDARD: MethodCode.STANDARD,
    Method.STRICT: MethodCode.STRICT,
    Method.BLOCK: MethodCode.BLOCK,
    Method.SYNTHETIC: MethodCode.SYNTHETIC,
    Method.TYPICAL: MethodCode.TYPICAL,
    Method.RELAXED: MethodCode.RELAXED,
}


@dataclass(frozen=True, eq=False)
class Resolved:
    """One parameter set, resolved.

    Attributes:
        method: GREEDY where temperature 0 makes it so.
        temperature: As given.
        draft_temperature: The temperature where none was given.
        reads_draft: Whether draft logits are read: the method compares p with q, and q is no point mass.
        lossy: Whether the emitted tokens leave the target's distribution.
        modes: Which numbers are wanted of each emitted token.
        ranks: Whether their ranks are.
        top: How many entries of the row beside each token; 0 without a mode.
        chosen_ids: Ids whose value is wanted beside each token; none without a mode.
        acceptance: Whether acceptance probabilities are wanted.
    """

    method: MethodCode
    temperature: float
    draft_temperature: float
    reads_draft: bool
    lossy: bool
    modes: frozenset[LogprobsMode]
    ranks: bool
    top: int
    chosen_ids: tuple[int, ...]
    acceptance: bool


_resolved: WeakKeyDictionary[SamplingParams, Resolved] = WeakKeyDictionary()


def resolve(params: SamplingParams) -> Resolved:
    """Resolve a parameter set that ``checks`` let pass; once for each object, which is immutable."""
    known = _resolved.get(params)
    if known is None:
        known = _resolved[params] = _resolve(params)
    return known


def _resolve(params: SamplingParams) -> Resolved:
    greedy = params.temperature == 0 and not params.method.lossy
    method = MethodCode.GREEDY if greedy else _CODES[params.method]
    draft_temperature = params.temperature if params.draft_temperature is None else params.draft_temperature
    modes = frozenset(LogprobsMode(mode) for mode in params.logprobs_modes)
    return Resolved(
        method=method,
        temperature=params.temperature,
        draft_temperature=draft_temperature,
        reads_draft=method in (MethodCode.STANDARD, MethodCode.BLOCK) and draft_temperature > 0,
        lossy=params.method.lossy,
        modes=modes,
        ranks=bool(modes) and params.ranks,
        top=params.top_logprobs if modes else 0,
        chosen_ids=tuple(params.logprob_token_ids) if modes else (),
        acceptance=params.acceptance_probabilities,
    )


@dataclass(frozen=True, eq=False)
class Wishes:
    """What each request of a batch wants reported. On the host.

    Attributes:
        lossy: [B] bool.
        modes: [B] bool each, the modes that some request wants.
        ranks: [B] bool.
        top: [B] int64, entries beside each emitted token.
        chosen_ids: [B, c] int32, ids listed by each request, filled up with -1; c is the longest list.
        acceptance: [B] bool.
    """

    lossy: NDArray[np.bool_]
    modes: Mapping[LogprobsMode, NDArray[np.bool_]]
    ranks: NDArray[np.bool_]
    top: NDArray[np.int64]
    chosen_ids: NDArray[np.int32]
    acceptance: NDArray[np.bool_]

    def view(self, *, raw: bool) -> NDArray[np.bool_]:
        """[B] bool, requests that want a mode of the raw rows, or one of the processed rows."""
        users = np.zeros(len(self.lossy), np.bool_)
        for mode, wanted in self.modes.items():
            if mode.raw == raw:
                users |= wanted
        return users

    @staticmethod
    def of(sets: Sequence[Resolved], index: NDArray[np.int64]) -> Wishes:
        """The wishes of B requests, ``index`` [B] into ``sets``."""
        chosen = np.full((len(sets), max(len(one.chosen_ids) for one in sets)), -1, np.int32)
        for row, one in zip(chosen, sets, strict=True):
            row[: len(one.chosen_ids)] = one.chosen_ids
        modes = {mode: np.array([mode in one.modes for one in sets])[index] for mode in LogprobsMode}
        return Wishes(
            lossy=np.array([one.lossy for one in sets])[index],
            modes={mode: users for mode, users in modes.items() if users.any()},
            ranks=np.array([one.ranks for one in sets])[index],
            top=np.array([one.top for one in sets], np.int64)[index],
            chosen_ids=chosen[index],
            acceptance=np.array([one.acceptance for one in sets])[index],
        )
