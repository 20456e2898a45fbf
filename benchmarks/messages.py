"""What the messages of a step cost, without transport and without the step itself, part by part.

B requests, k = 4, top-20 logprobs, kept params, seeds and positions. The vocabulary is tiny, so that what is measured
is everything but the logits, whose cost is that of copying memory.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from sampler_client.codec.request import ParamsColumns, encode_stream_request
from sampler_client.codec.response import decode_stream_response
from sampler_client.result import StepResult
from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels.verify import verify_checked
from sampler_loadtest.workload import Workload
from sampler_service.codec.kept import KeptState
from sampler_service.codec.parse import parse
from sampler_service.codec.result import fill_result
from sampler_service.codec.step import StepDecoder
from sampler_service.limits import Limits
from sampler_service.steps import CheckedStep, Ran

TOP_N, VOCAB = 20, 32
BY_ENTRY = "response read, entry by entry"


def measure(batch: int, rounds: int = 400) -> dict[str, Any]:
    """Median microseconds of each part over ``rounds``, their sum, and the sum of their tenth percentiles."""
    torch.set_num_threads(1)
    step = Workload(batch=batch, vocab_size=VOCAB, top_logprobs=TOP_N).steps()[0]
    limits = Limits()
    kept, decoder = KeptState(limits), StepDecoder(limits)

    def build_request(*, keep: bool = False) -> bytes:
        named = ParamsColumns(step.params, keep_as=[1]) if keep else ParamsColumns((), kept=[1])
        return encode_stream_request(step, step_id=7, timeout_us=1_000_000, params=named)

    def read_request(request: bytes) -> CheckedStep:
        message, tensors = parse(pb.VerifyStreamRequest, request)
        return decoder.decode(message.step, tensors, kept)

    def build_response(ran: Ran) -> bytes:
        message = pb.VerifyStreamResponse(step_id=7)
        fill_result(message.result, ran)
        return message.SerializeToString()

    read_request(build_request(keep=True))
    request = build_request()
    checked = read_request(request)
    ran = Ran(checked.step, verify_checked(checked.step, checked.columns, backend="cpu"), 0.0, 0.0)
    response = build_response(ran)
    parts: dict[str, Callable[[], object]] = {
        "request built": build_request,
        "request read and checked": lambda: read_request(request),
        "response built": lambda: build_response(ran),
        "response read, columns": lambda: read_columns(response),
        BY_ENTRY: lambda: read_entries(response),
    }
    times: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(rounds):
        for name, run in parts.items():
            started = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - started) * 1e6)
    medians = {name: round(statistics.median(values), 1) for name, values in times.items()}
    quiet = {name: sorted(values)[rounds // 10] for name, values in times.items() if name != BY_ENTRY}
    by_entry = medians.pop(BY_ENTRY)
    return {
        "batch": batch,
        "top_logprobs": TOP_N,
        "request_bytes": len(request),
        "response_bytes": len(response),
        "median_us": medians,
        "sum_us": round(sum(medians.values()), 1),
        "quiet_sum_us": round(sum(quiet.values()), 1),
        "entry_by_entry_us": by_entry,
    }


def read_columns(response: bytes) -> list[object]:
    """Everything an engine takes from a result that keeps its numbers in arrays."""
    _, result = decode_stream_response(response)
    assert isinstance(result, StepResult)
    read: list[object] = [result.token_ids, result.cu_tokens, result.num_accepted, result.status, result.seeds]
    read += [result.finish_reason, result.lossy, result.bad_row, result.timing]
    for mode in result.logprobs.values():
        read += [mode.values, mode.ranks, mode.cumulative, mode.top.cu, mode.top.token_ids, mode.top.values]
    return read


def read_entries(response: bytes) -> int:
    """The same for one that walks over requests and tokens, down to Python's own numbers."""
    _, result = decode_stream_response(response)
    assert isinstance(result, StepResult)
    pairs = 0
    for request in result.requests:
        request.token_ids.tolist()
        for logprobs in request.logprobs.values():
            logprobs.values.tolist()
            for entries in logprobs.top:
                pairs += len(entries.pairs())
    return pairs


if __name__ == "__main__":
    for size in (1, 8, 64):
        print(measure(size))
