"""Each emitted token beside the row that predicted it."""

from __future__ import annotations

import torch

from sampler_kernels.flatten.reference import flatten
from sampler_kernels.outcome import Decision, DrawKind
from sampler_kernels.result import Status
from tests.kernels.steps import Request, make_batch


def test_ragged_batch() -> None:
    row = torch.zeros(4, 9)
    ids = [[5, 6, 7], [], [4], [3, -1], [8, 8]]
    batch = make_batch([Request(row[: len(x) + 1], x) for x in ids])
    decision = Decision(
        num_accepted=torch.tensor([3, 0, 0, 1, 0], dtype=torch.int32),
        status=torch.tensor([Status.OK] * 4 + [Status.INVALID_LOGITS], dtype=torch.int32),
        bad_row=torch.tensor([-1, -1, -1, -1, 1], dtype=torch.int32),
        draw_kind=torch.tensor([DrawKind.TARGET] * 4 + [DrawKind.NOTHING], dtype=torch.int32),
        scale=torch.ones(5, dtype=torch.float64),
    )
    tokens = torch.tensor([1, 2, 0, 6, -1], dtype=torch.int32)
    emitted = flatten(batch, decision, tokens)
    assert emitted.dtype == torch.int32
    assert emitted.tolist() == [5, 6, 7, 1, 2, 0, -1, 3, 6, -1, -1, -1, -1]
