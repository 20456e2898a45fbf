"""Parameter sets that the server keeps for a stream, so that a step sends only those that are new."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sampler_client.codec.request import ParamsColumns
from sampler_client.params import SamplingParams
from sampler_client.step import Step


@dataclass(eq=False, slots=True)
class Kept:
    """A parameter set under an id of the server.

    Attributes:
        number: The id, above 0.
        confirmed: Whether a step that kept it has passed the server's checks.
    """

    number: int
    confirmed: bool = False


class KeptParams:
    """Chooses for each step which sets are named and which are sent.

    A set is named once a step that kept it was answered. Until then every step sends it again: a refused step keeps
    nothing, and a step behind it in the stream must not depend on it. The least recently used set makes room for a new
    one; steps before that still find the old one, because the server takes steps in order.

    Args:
        capacity: Sets that the server keeps at most; 0: it keeps none.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[SamplingParams, Kept] = OrderedDict()

    def plan(self, step: Step) -> tuple[ParamsColumns, list[Kept]]:
        """Says how the sets of a step go over the wire.

        Returns:
            The columns, and what is to be confirmed when the step is answered with a result.
        """
        indices = [0] * len(step.draft_lengths) if step.params_index is None else step.params_index
        if not self._capacity or not step.params or not all(0 <= index < len(step.params) for index in indices):
            return ParamsColumns(step.params, step.params_index), []
        entries = self._entries(list(dict.fromkeys(step.params)))
        sent = [params for params, entry in entries.items() if entry is None or not entry.confirmed]
        named = [params for params, entry in entries.items() if entry is not None and entry.confirmed]
        places = {params: place for place, params in enumerate([*sent, *named])}
        sent_entries = [entries[params] for params in sent]
        columns = ParamsColumns(
            sent=sent,
            index=[places[step.params[index]] for index in indices],
            kept=[entry.number for params in named if (entry := entries[params])],
            keep_as=[0 if entry is None else entry.number for entry in sent_entries],
        )
        return columns, [entry for entry in sent_entries if entry is not None]

    @staticmethod
    def confirm(entries: Iterable[Kept]) -> None:
        """Notes that the server keeps these."""
        for entry in entries:
            entry.confirmed = True

    def forget(self) -> None:
        """Trusts in nothing any more: every set is sent again."""
        self._kept.clear()

    def _entries(self, sets: list[SamplingParams]) -> dict[SamplingParams, Kept | None]:
        """The entry of each set; None for those that find no room beside the others of their step."""
        entries: dict[SamplingParams, Kept | None] = {}
        for params in sets:
            entries[params] = self._kept.get(params)
            if params in self._kept:
                self._kept.move_to_end(params)
        for params in [params for params, entry in entries.items() if entry is None]:
            number = self._free_number(in_use=entries)
            if number is None:
                break
            entries[params] = self._kept[params] = Kept(number)
        return entries

    def _free_number(self, in_use: Mapping[SamplingParams, Kept | None]) -> int | None:
        """An id for a new set: an unused one, or that of the least recently used set unless this step uses it."""
        if len(self._kept) < self._capacity:
            return len(self._kept) + 1
        oldest = next(iter(self._kept))
        return None if in_use.get(oldest) else self._kept.pop(oldest).number
