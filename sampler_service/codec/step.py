"""A Step of the wire as a Step of the core, every rule checked that the core cannot see any more afterwards."""

from __future__ import annotations

from dataclasses import replace

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels import Step, StepRefused
from sampler_kernels.checks import checked
from sampler_kernels.host import HostColumns
from sampler_kernels.refusal import Reason as CoreReason
from sampler_service.codec.base import base_of
from sampler_service.codec.bounds import check_bounds
from sampler_service.codec.extras import extras_of
from sampler_service.codec.kept import KeptState
from sampler_service.codec.located import located
from sampler_service.codec.params import ParamsDecoder
from sampler_service.codec.reading import Reading
from sampler_service.codec.repeats import Repeats, take_numbers
from sampler_service.codec.tensors import TensorReader
from sampler_service.codec.unbuilt import check_unbuilt
from sampler_service.errors import internal
from sampler_service.limits import Limits
from sampler_service.steps import CheckedStep


class StepDecoder:
    """Reads the steps of all calls.

    Args:
        limits: What a step may hold.
        backend: Who will run the steps, and may lack what others have.
    """

    def __init__(self, limits: Limits, backend: str = "cpu") -> None:
        self._limits = limits
        self._backend = backend
        self._params = ParamsDecoder(limits)
        self._repeats = Repeats()

    def decode(self, message: pb.Step, tensors: TensorReader, kept: KeptState | None) -> CheckedStep:
        """The step of a message, checked whole; then, and only then, what it keeps is kept.

        Args:
            message: As parsed.
            tensors: Reads its tensors. The step's tensors share the received bytes.
            kept: The state of the stream; None for a call that has nowhere to keep anything.

        Raises:
            Refusal: Mistakes come before what is not built: NOT_IMPLEMENTED says that the step is otherwise right.
        """
        repeats = self._repeats if kept is None else kept.repeats
        numbers = take_numbers(message, tensors)
        if numbers is None:
            return self._decode_fully(message, tensors, kept)
        again = repeats.recall(numbers, tensors)
        if again is None:
            numbers.put_back()
            again = self._decode_fully(message, tensors, kept)
            repeats.remember(message, numbers, again)
        return again

    def _decode_fully(self, message: pb.Step, tensors: TensorReader, kept: KeptState | None) -> CheckedStep:
        reading = Reading(message, tensors, kept, self._limits)
        step = base_of(reading, self._params)
        columns = _checked(step, reading, self._backend)
        extras = extras_of(reading, step)
        if extras:
            step = replace(step, **extras)
            columns = _checked(step, reading, self._backend)
        check_unbuilt(reading)
        if reading.not_built is not None or columns is None:
            raise reading.not_built or internal()
        check_bounds(step, columns, self._limits)
        reading.apply_changes()
        return CheckedStep(step, columns)


def _checked(step: Step, reading: Reading, backend: str) -> HostColumns | None:
    """The columns of a step that is right; None, with a note, for one that is right and not built."""
    try:
        return checked(step, backend)
    except StepRefused as refused:
        refusal = located(refused, reading.message)
        if refused.reason is not CoreReason.NOT_IMPLEMENTED:
            raise refusal from None
        reading.not_built = reading.not_built or refusal
        return None
