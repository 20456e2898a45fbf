"""The sampling step of speculative decoding: target logits, draft logits and draft ids in, emitted tokens out.

One function, :func:`verify`, on a :class:`Step` of tensors. Neither gRPC nor, on a CPU, triton is needed.

    from sampler_kernels import DraftBlock, SamplingParams, Step, verify

    step = Step(
        target_logits=target_logits,  # [sum of k + 1, V]
        draft_token_ids=draft_token_ids,  # [sum of k]
        draft_lengths=[4, 4],
        draft_blocks=[DraftBlock(draft_logits)],  # [sum of k, V]
        params=[SamplingParams(temperature=0.8)],
        seeds=[7, 8],
        positions=[120, 64],
    )
    result = verify(step)
"""

from sampler_kernels.backends import BackendUnavailable
from sampler_kernels.checks import check
from sampler_kernels.params import LogprobsMode, Method, SamplingParams
from sampler_kernels.refusal import Reason, StepRefused
from sampler_kernels.result import FinishReason, ModeLogprobs, Status, StepResult, Timings
from sampler_kernels.step import DraftBlock, IdMap, Ragged, Step, TokenCounts
from sampler_kernels.verify import verify

__all__ = [
    "BackendUnavailable",
    "DraftBlock",
    "FinishReason",
    "IdMap",
    "LogprobsMode",
    "Method",
    "ModeLogprobs",
    "Ragged",
    "Reason",
    "SamplingParams",
    "Status",
    "Step",
    "StepRefused",
    "StepResult",
    "Timings",
    "TokenCounts",
    "check",
    "verify",
]
