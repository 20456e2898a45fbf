"""Steps like an earlier one: decoded and checked by what differs.

An engine sends the same step again and again with other numbers in it. What is left of a message without its logits,
draft ids, seeds and positions says everything else about the step. If that was seen before, in a step that passed all
checks, only the numbers are looked at.

Nothing is refused here. A step that is wrong, or new, goes the full way, which says what is wrong with it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels import DraftBlock, StepRefused
from sampler_kernels.checks import checked_again
from sampler_service.codec.lift import SMALL
from sampler_service.codec.tensors import TensorReader, elements
from sampler_service.steps import CheckedStep

_ENTRIES: Final = 16
"""Forms remembered in one place: batch size and draft lengths vary. A form takes some 100 bytes a request."""

_MAX_BYTES: Final = 2048
"""Longest rest of a message that is remembered. A batch of 1,000 requests, each with a length and an index, has it."""

_REPEATED: Final = frozenset(
    (
        "target_logits",
        "draft_token_ids",
        "draft_lengths",
        "draft_blocks",
        "draft_block_index",
        "params",
        "params_index",
        "kept_params",
        "seeds",
        "positions",
    )
)
"""Fields of a step that may be like another: all that is not a number is in the rest, where it is compared."""

_NOTHING: Final = torch.empty(0)


class Numbers:
    """The numbers of a message, taken out of it.

    Args:
        message: Without them until :meth:`put_back`.
        tensors: Those of its tensors whose elements are numbers.
        payloads: Their ``inline_bytes``.

    Attributes:
        payloads: As above.
        seeds: [B] or none, uint64.
        positions: [B] or none, uint64.
        rest: What remains of the message, serialized.
    """

    def __init__(self, message: pb.Step, tensors: list[pb.Tensor], payloads: list[bytes]) -> None:
        self._message = message
        self._tensors = tensors
        self.payloads = payloads
        self.seeds = np.fromiter(message.seeds, np.uint64, len(message.seeds))
        self.positions = np.fromiter(message.positions, np.uint64, len(message.positions))
        for tensor in tensors:
            tensor.ClearField("inline_bytes")
        message.ClearField("seeds")
        message.ClearField("positions")
        self.rest = message.SerializeToString()

    def put_back(self) -> None:
        """Make the message what it was."""
        for tensor, payload in zip(self._tensors, self.payloads, strict=True):
            tensor.inline_bytes = payload
        self._message.seeds.extend(self.seeds.tolist())
        self._message.positions.extend(self.positions.tolist())


def take_numbers(message: pb.Step, reader: TensorReader) -> Numbers | None:
    """The numbers of a step, taken out of its message.

    None, and the message as it was, if some tensor has no bytes, or if taking them out of a large message would cost
    memory and time that nobody has admitted yet.
    """
    if reader.parsed_bytes > SMALL:
        return None
    tensors = [message.target_logits, message.draft_token_ids]
    tensors += [block.logits for block in message.draft_blocks]
    payloads = [tensor.inline_bytes for tensor in tensors]
    return Numbers(message, tensors, payloads) if all(payloads) else None


def _may_repeat(message: pb.Step) -> bool:
    """Whether a step keeps and forgets nothing, and has no tensors but those that numbers are taken from."""
    known = all(field.name in _REPEATED for field, _ in message.ListFields())
    return known and not any(b.HasField("draft_id_map") or b.keep_draft_id_map_as for b in message.draft_blocks)


class _Layout(NamedTuple):
    """How a tensor lies in its bytes."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    size: int

    @classmethod
    def of(cls, tensor: Tensor) -> _Layout:
        return cls(tensor.shape, tensor.stride(), tensor.dtype, tensor.untyped_storage().nbytes())

    def read(self, data: bytes | memoryview) -> Tensor | None:
        """A tensor over other bytes; None if their number is another."""
        if len(data) != self.size:
            return None
        return elements(data, self.dtype).as_strided(self.shape, self.stride)


class _Form(NamedTuple):
    """An earlier step without its numbers."""

    checked: CheckedStep
    layouts: list[_Layout]

    def fill(self, numbers: Numbers, reader: TensorReader) -> CheckedStep | None:
        """The form with other numbers in it; None if they do not fit or break a rule."""
        step = self.checked.step
        if (step.seeds is None, step.positions is None) != (not len(numbers.seeds), not len(numbers.positions)):
            return None
        tensors = []
        for layout, payload in zip(self.layouts, numbers.payloads, strict=True):
            tensor = layout.read(reader.payload(payload))
            if tensor is None:
                return None
            tensors.append(tensor)
        again = step.with_numbers(
            target_logits=tensors[0],
            draft_token_ids=tensors[1],
            draft_blocks=[DraftBlock(t, b.id_map) for t, b in zip(tensors[2:], step.draft_blocks, strict=True)],
            seeds=None if step.seeds is None else numbers.seeds,
            positions=None if step.positions is None else numbers.positions,
        )
        try:
            return CheckedStep(again, checked_again(again, self.checked.columns))
        except StepRefused:
            return None


class Repeats:
    """Remembers the latest forms of steps that passed all checks.

    One memory serves steps that find the same under the same ids: those of one stream, until it keeps or forgets
    something; and all those that have nothing kept.
    """

    def __init__(self) -> None:
        self._forms: OrderedDict[bytes, _Form] = OrderedDict()

    def recall(self, numbers: Numbers, reader: TensorReader) -> CheckedStep | None:
        """The step that the numbers were taken from, checked; None if it has to go the full way."""
        form = self._forms.get(numbers.rest)
        if form is None:
            return None
        self._forms.move_to_end(numbers.rest)
        return form.fill(numbers, reader)

    def remember(self, message: pb.Step, numbers: Numbers, checked: CheckedStep) -> None:
        """Note the form of a step that went the full way and passed."""
        if len(numbers.rest) > _MAX_BYTES or not _may_repeat(message):
            return
        step = checked.step
        layouts = [_Layout.of(tensor) for tensor in (step.target_logits, step.draft_token_ids)]
        layouts += [_Layout.of(block.logits) for block in step.draft_blocks]
        if not all(layout.size for layout in layouts):
            return
        # The message's bytes must not stay.
        empty = step.with_numbers(
            target_logits=_NOTHING,
            draft_token_ids=_NOTHING,
            draft_blocks=[DraftBlock(_NOTHING, block.id_map) for block in step.draft_blocks],
            seeds=step.seeds,
            positions=step.positions,
        )
        self._forms[numbers.rest] = _Form(CheckedStep(empty, checked.columns), layouts)
        if len(self._forms) > _ENTRIES:
            self._forms.popitem(last=False)

    def forget(self) -> None:
        """Remember nothing: what ids stand for has changed."""
        self._forms.clear()
