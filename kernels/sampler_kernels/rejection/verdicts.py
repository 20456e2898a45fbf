"""The outcome of the accept tests while it is being written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.elements import Floats, Ints
from sampler_kernels.outcome import Decision, DrawKind
from sampler_kernels.result import Status


@dataclass(frozen=True, eq=False)
class Verdicts:
    """The columns of :class:`~sampler_kernels.outcome.Decision`, [B], as arrays; each request is written once."""

    num_accepted: NDArray[np.int32]
    status: NDArray[np.int32]
    bad_row: NDArray[np.int32]
    draw_kind: NDArray[np.int32]
    scale: Floats

    @classmethod
    def blank(cls, batch: int) -> Verdicts:
        """Of requests that accept nothing and draw nothing."""
        return cls(
            num_accepted=np.zeros(batch, np.int32),
            status=np.full(batch, int(Status.OK), np.int32),
            bad_row=np.full(batch, -1, np.int32),
            draw_kind=np.full(batch, int(DrawKind.NOTHING), np.int32),
            scale=np.ones(batch),
        )

    def illegal_ids(self, request: Ints) -> None:
        """These have a draft id outside its range."""
        self.status[request] = Status.INVALID_DRAFT_TOKEN

    def bad_rows(self, request: Ints, j: Ints | int) -> None:
        """These cannot be decided, for a bad row at ``j``."""
        self.status[request], self.bad_row[request] = Status.INVALID_LOGITS, j

    def accept(self, request: Ints, t: Ints | int, kind: Ints) -> None:
        """These accept ``t`` draft tokens, and draw the final one as ``kind`` says."""
        self.num_accepted[request], self.draw_kind[request] = t, kind

    def decision(self, acceptance: Tensor | None) -> Decision:
        """The finished outcome."""
        return Decision(
            num_accepted=torch.from_numpy(self.num_accepted),
            status=torch.from_numpy(self.status),
            bad_row=torch.from_numpy(self.bad_row),
            draw_kind=torch.from_numpy(self.draw_kind),
            scale=torch.from_numpy(self.scale),
            acceptance=acceptance,
        )
