"""The core's refusals with the path of their field in the message that the step came from."""

from __future__ import annotations

from typing import Final

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels import StepRefused
from sampler_service.errors import Refusal, of_core

_PARAMS_FIELDS: Final = frozenset(field.name for field in pb.SamplingParams.DESCRIPTOR.fields)

_PER_REQUEST: Final = frozenset(
    ("draft_lengths", "draft_block_index", "params_index", "seeds", "positions", "num_output_tokens")
)


def located(refused: StepRefused, message: pb.Step) -> Refusal:
    """The refusal with a path such as ``params[1].top_p`` or ``positions[3]`` instead of a bare name."""
    refusal = of_core(refused)
    if refusal.field is None or refusal.request is None:
        return refusal
    if refusal.field in _PARAMS_FIELDS:
        used = message.params_index[refusal.request] if message.params_index else 0
        sent = len(message.params)
        table = f"params[{used}]" if used < sent or not message.kept_params else f"kept_params[{used - sent}]"
        refusal.field = f"{table}.{refusal.field}"
    elif refusal.field in _PER_REQUEST:
        refusal.field = f"{refusal.field}[{refusal.request}]"
    return refusal
