"""StepResult of the core as StepResult of the wire."""

from __future__ import annotations

from time import perf_counter
from typing import Final

import numpy as np

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels import LogprobsMode, ModeLogprobs
from sampler_service import __version__
from sampler_service.steps import Ran

_MODES: Final = (
    (LogprobsMode.RAW_LOGPROBS, pb.LOGPROBS_MODE_RAW_LOGPROBS),
    (LogprobsMode.PROCESSED_LOGPROBS, pb.LOGPROBS_MODE_PROCESSED_LOGPROBS),
    (LogprobsMode.RAW_LOGITS, pb.LOGPROBS_MODE_RAW_LOGITS),
    (LogprobsMode.PROCESSED_LOGITS, pb.LOGPROBS_MODE_PROCESSED_LOGITS),
)
_WITHOUT_SUM: Final = (LogprobsMode.RAW_LOGITS, LogprobsMode.PROCESSED_LOGITS)

_LITTLE_I32: Final = np.dtype("<i4")
_LITTLE_F32: Final = np.dtype("<f4")


def fill_result(message: pb.StepResult, ran: Ran) -> None:
    """Write a result into an empty message.

    Args:
        message: Of the response; filled in place, because assigning a built message would copy it.
        ran: The step and its result. The step tells a table that nobody wished for from one that came out empty.
    """
    result, step = ran.result, ran.step
    # Lists, not arrays: protobuf takes numpy scalars one by one, several times slower.
    message.token_ids.extend(result.token_ids.tolist())
    message.cu_tokens.extend(result.cu_tokens.tolist())
    message.num_accepted.extend(result.num_accepted.tolist())
    message.status.extend(result.status.tolist())
    message.seed.extend(result.seeds.tolist())
    message.finish_reason.extend(result.finish_reason.tolist())
    message.lossy.extend(result.lossy.tolist())
    message.bad_row.extend(result.bad_row.tolist())
    used = step.params if step.params_index is None else [step.params[i] for i in set(step.params_index)]
    wants_top = any(params.top_logprobs for params in used)
    wants_chosen = any(len(params.logprob_token_ids) for params in used)
    for mode, number in _MODES:
        if mode in result.logprobs:
            one = message.logprobs.add(mode=number)
            _fill_mode(one, result.logprobs[mode], sums=mode not in _WITHOUT_SUM, top=wants_top, chosen=wants_chosen)
    if result.acceptance_probabilities is not None and result.cu_acceptance is not None:
        message.acceptance_probabilities.extend(result.acceptance_probabilities.tolist())
        message.cu_acceptance_probabilities.extend(result.cu_acceptance.tolist())
    timing = message.timing
    timing.queue_us = (ran.started - ran.arrived) * 1e6
    timing.upload_us = result.timings.upload_us
    timing.device_us = result.timings.device_us
    timing.download_us = result.timings.download_us
    timing.total_us = (perf_counter() - ran.arrived) * 1e6
    message.backend = result.backend
    message.version = __version__


def _fill_mode(message: pb.LogprobsResult, numbers: ModeLogprobs, *, sums: bool, top: bool, chosen: bool) -> None:
    message.values.extend(numbers.values.tolist())
    # A rank is at least 1, so a column of zeros is one that nobody asked for.
    if numbers.ranks.any():
        message.ranks.extend(numbers.ranks.tolist())
    if sums:
        message.cumulative.extend(numbers.cumulative.tolist())
    if top:
        message.cu_top.extend(numbers.cu_top.tolist())
        message.top_token_ids = numbers.top_ids.astype(_LITTLE_I32, copy=False).tobytes()
        message.top_values = numbers.top_values.astype(_LITTLE_F32, copy=False).tobytes()
    if chosen:
        message.cu_chosen.extend(numbers.cu_chosen.tolist())
        message.chosen_token_ids = numbers.chosen_ids.astype(_LITTLE_I32, copy=False).tobytes()
        message.chosen_values = numbers.chosen_values.astype(_LITTLE_F32, copy=False).tobytes()
