"""What the parts of a step share while they are read: the message, its tensors, its stream's state, what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels.refusal import Reason as CoreReason
from sampler_service.codec.kept import Changes, KeptState
from sampler_service.codec.tensors import TensorReader, WireTensor
from sampler_service.errors import Reason, Refusal, refuse
from sampler_service.limits import Limits


class Reading:
    """One step being read.

    Args:
        message: As parsed.
        tensors: Reads its tensors.
        kept: The state of the stream; None for a call that has nowhere to keep anything.
        limits: What a step may hold.

    Attributes:
        changes: What the step keeps and forgets once it has passed all checks.
        not_built: The first thing found that is legal and that this server cannot do.
    """

    def __init__(self, message: pb.Step, tensors: TensorReader, kept: KeptState | None, limits: Limits) -> None:
        self.message = message
        self.limits = limits
        self.changes = Changes()
        self.not_built: Refusal | None = None
        self._tensors = tensors
        self._kept = kept

    @property
    def batch(self) -> int:
        """B, the number of requests."""
        return len(self.message.draft_lengths)

    def miss(self, what: str, field: str) -> None:
        """Note something legal that cannot be done: the client hears of it if it has made no mistake."""
        if self.not_built is None:
            self.not_built = refuse(CoreReason.NOT_IMPLEMENTED, f"{field}: {what} not built yet", field=field)

    def tensor(
        self,
        message: pb.Tensor,
        field: str,
        dtypes: Sequence[int],
        ndims: Sequence[int] = (1,),
        max_columns: int | None = None,
    ) -> WireTensor:
        """An input tensor. One that lies in a region is noted as missing, and zeros stand for it in further checks.

        Raises:
            Refusal: As :class:`TensorReader`.
        """
        tensor = self._tensors(message, field, dtypes, ndims, max_columns)
        if tensor.in_region:
            self.miss("tensors in registered regions are", f"{field}.region")
        return tensor

    def output(self, message: pb.Tensor, field: str, dtypes: Sequence[int], ndim: int) -> WireTensor:
        """An output tensor, which must lie in a region.

        Raises:
            Refusal: As :class:`TensorReader`, or FIELD_REQUIRED.
        """
        tensor = self._tensors(message, field, dtypes, (ndim,), self.limits.max_vocab_size)
        if not tensor.in_region:
            what = f"{field} does not lie in a region; results are written to registered memory only"
            raise refuse(Reason.FIELD_REQUIRED, what, field=f"{field}.region")
        return tensor

    def kept(self, where: str) -> KeptState:
        """The state that the step's ids refer to; ``where`` is the path of the field that holds one.

        Raises:
            Refusal: NOT_IMPLEMENTED for a session's state, KEPT_STATE_NEEDS_STREAM where there is none.
        """
        if self.message.session_id:
            raise refuse(CoreReason.NOT_IMPLEMENTED, f"{where}: sessions are not built yet", field="session_id")
        if self._kept is None:
            what = f"{where}: a unary step has no stream to keep anything in; send what it needs, or use VerifyStream"
            raise refuse(Reason.KEPT_STATE_NEEDS_STREAM, what, field=where)
        return self._kept

    def apply_changes(self) -> None:
        """Keep and forget, now that the step has passed all checks."""
        if self.changes and self._kept is not None:
            self._kept.apply(self.changes)
