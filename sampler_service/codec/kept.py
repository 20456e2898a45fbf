"""What a stream keeps from step to step under ids of the client's choice: parameter sets and draft id maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels.params import SamplingParams
from sampler_kernels.step import IdMap
from sampler_service.codec.repeats import Repeats
from sampler_service.errors import Reason, refuse
from sampler_service.limits import Limits

T = TypeVar("T")


@dataclass
class Changes:
    """What a step keeps and forgets once it has passed all checks."""

    params: dict[int, SamplingParams] = field(default_factory=dict)
    draft_id_maps: dict[int, IdMap] = field(default_factory=dict)
    forget: pb.Forget | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.params or self.draft_id_maps or self.forget is not None)


class KeptState:
    """The kept state of one stream.

    Args:
        limits: How much it may hold.

    Attributes:
        repeats: Forms of the stream's steps, which hold as long as nothing here changes.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._params: dict[int, SamplingParams] = {}
        self._draft_id_maps: dict[int, IdMap] = {}
        self.repeats = Repeats()

    def params(self, key: int, where: str) -> SamplingParams:
        """The parameter set under ``key``; ``where`` is the path of the field that names it.

        Raises:
            Refusal: KEPT_STATE_NOT_FOUND.
        """
        return _get(self._params, key, where, "parameter set")

    def draft_id_map(self, key: int, where: str) -> IdMap:
        """The map under ``key``; ``where`` is the path of the field that names it.

        Raises:
            Refusal: KEPT_STATE_NOT_FOUND.
        """
        return _get(self._draft_id_maps, key, where, "draft id map")

    def check_room(self, changes: Changes) -> None:
        """Refuse changes for which there is no room, before any of them is made.

        Raises:
            Refusal: KEPT_STATE_FULL.
        """
        _check_room(self._params, changes.params, self._limits.max_kept_params, "parameter sets")
        _check_room(self._draft_id_maps, changes.draft_id_maps, self._limits.max_kept_draft_id_maps, "draft id maps")

    def apply(self, changes: Changes) -> None:
        """Keep, then forget: what a step forgets it may still have used."""
        self.repeats.forget()
        self._params |= changes.params
        self._draft_id_maps |= changes.draft_id_maps
        if changes.forget is not None:
            for key in changes.forget.params:
                self._params.pop(key, None)
            for key in changes.forget.draft_id_maps:
                self._draft_id_maps.pop(key, None)


def _get(kept: Mapping[int, T], key: int, where: str, kind: str) -> T:
    if key not in kept:
        what = f"{where} names {kind} {key}, and none is kept under that id; keep it first, in this stream"
        raise refuse(Reason.KEPT_STATE_NOT_FOUND, what, field=where)
    return kept[key]


def _check_room(kept: Mapping[int, T], new: Mapping[int, T], most: int, kind: str) -> None:
    held = len(kept.keys() | new.keys())
    if held > most:
        raise refuse(Reason.KEPT_STATE_FULL, f"this step would make it {held} kept {kind}; at most {most} can be kept")
