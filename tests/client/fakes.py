"""A service that decides nothing: it records each step and answers as it is told, over real gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

import grpc
import numpy as np
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from sampler_client.v1 import sampler_pb2 as pb

Outcome = pb.StepResult | status_pb2.Status
Context = grpc.ServicerContext

INFO = pb.GetServerInfoResponse(
    version="0.1.0",
    backend="cpu",
    device=pb.Device(name="a processor", memory_bytes=1 << 30),
    logits_dtypes=[pb.DTYPE_FLOAT32, pb.DTYPE_BFLOAT16],
    methods=[pb.METHOD_STANDARD],
    logprobs_modes=[pb.LOGPROBS_MODE_RAW_LOGPROBS],
    features=[pb.FEATURE_STREAM, pb.FEATURE_KEPT_STATE],
    planes=[pb.PLANE_BYTES],
    limits=pb.Limits(max_receive_message_bytes=1 << 20, max_batch_size=512, max_kept_params=4),
)


def accept_all(step: pb.Step) -> pb.StepResult:
    """Every draft token stands, 0 follows; raw logprobs of -1.5 with the id itself as the only top entry."""
    lengths = list(step.draft_lengths)
    ids = iter(np.frombuffer(step.draft_token_ids.inline_bytes, dtype="<i8").tolist() if sum(lengths) else [])
    tokens = [[next(ids) for _ in range(k)] + [0] for k in lengths]
    flat = [token for request in tokens for token in request]
    batch, emitted = len(lengths), len(flat)
    logprobs = pb.LogprobsResult(
        mode=pb.LOGPROBS_MODE_RAW_LOGPROBS,
        values=[-1.5] * emitted,
        ranks=[1] * emitted,
        cumulative=[-1.5 * len(request) for request in tokens],
        cu_top=range(emitted + 1),
        top_token_ids=np.asarray(flat, dtype="<i4").tobytes(),
        top_values=np.full(emitted, -1.5, dtype="<f4").tobytes(),
    )
    return pb.StepResult(
        token_ids=flat,
        cu_tokens=[0, *accumulate(map(len, tokens))],
        num_accepted=lengths,
        status=[pb.REQUEST_STATUS_OK] * batch,
        seed=list(step.seeds) or [5] * batch,
        finish_reason=[pb.FINISH_REASON_UNSPECIFIED] * batch,
        lossy=[False] * batch,
        bad_row=[-1] * batch,
        logprobs=[logprobs],
        backend="fake",
    )


def refusal(
    code: grpc.StatusCode, reason: str, text: str = "no", *, field: str = "", retry_ms: int = 0
) -> status_pb2.Status:
    """A refusal with the details that the contract names."""
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=reason, domain="sampler.v1", metadata={"request": "0"})
    ]
    if field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=text)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if retry_ms:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(retry_ms)
        details.append(retry)
    status = status_pb2.Status(code=code.value[0], message=f"{reason}: {text}")
    for detail in details:
        status.details.add().Pack(detail)
    return status


def in_band(status: status_pb2.Status) -> pb.StepError:
    """The same refusal inside a stream."""
    error = pb.StepError(code=status.code, message=status.message)
    for detail in status.details:
        info, request, retry = (
            error_details_pb2.ErrorInfo(),
            error_details_pb2.BadRequest(),
            error_details_pb2.RetryInfo(),
        )
        if detail.Unpack(info):
            error.reason = info.reason
            error.metadata.update(info.metadata)
        elif detail.Unpack(request):
            for entry in request.field_violations:
                error.field_violations.add(field=entry.field, description=entry.description)
        elif detail.Unpack(retry):
            error.retry_delay_us = retry.retry_delay.ToMicroseconds()
    return error


class FakeService:
    """Answers each step by ``answer``, which tests replace, and keeps the steps in ``steps``."""

    def __init__(self) -> None:
        self.info = pb.GetServerInfoResponse()
        self.info.CopyFrom(INFO)
        self.steps: list[pb.Step] = []
        self.timeouts_us: list[int] = []
        self.streams = 0
        self.metadata: dict[str, Any] = {}
        self.answer: Callable[[pb.Step], Outcome] = accept_all
        self.breaks_after: int | None = None
        self.wrong_by = 0  # added to the number of each step in its answer

    def handlers(self) -> grpc.GenericRpcHandler:
        """The calls that the client makes, under the names of the contract."""
        name = pb.DESCRIPTOR.services_by_name["SamplerService"].full_name
        return grpc.method_handlers_generic_handler(
            name,
            {
                "GetServerInfo": grpc.unary_unary_rpc_method_handler(
                    self._server_info, pb.GetServerInfoRequest.FromString, pb.GetServerInfoResponse.SerializeToString
                ),
                "Verify": grpc.unary_unary_rpc_method_handler(
                    self._verify, pb.VerifyRequest.FromString, pb.VerifyResponse.SerializeToString
                ),
                "VerifyStream": grpc.stream_stream_rpc_method_handler(
                    self._verify_stream, pb.VerifyStreamRequest.FromString, pb.VerifyStreamResponse.SerializeToString
                ),
            },
        )

    def _server_info(self, _: pb.GetServerInfoRequest, context: Context) -> pb.GetServerInfoResponse:
        self.metadata = dict(context.invocation_metadata())
        return self.info

    def _verify(self, request: pb.VerifyRequest, context: Context) -> pb.VerifyResponse:
        self.steps.append(request.step)
        outcome = self.answer(request.step)
        if isinstance(outcome, status_pb2.Status):
            self._abort(outcome, context)
        return pb.VerifyResponse(result=outcome)

    def _verify_stream(
        self, requests: Iterator[pb.VerifyStreamRequest], context: Context
    ) -> Iterator[pb.VerifyStreamResponse]:
        """Breaks off with UNAVAILABLE instead of answering step number ``breaks_after`` of its first stream."""
        self.streams += 1
        first = self.streams == 1
        for number, request in enumerate(requests):
            self.steps.append(request.step)
            self.timeouts_us.append(request.timeout_us)
            if first and number == self.breaks_after:
                self._abort(refusal(grpc.StatusCode.UNAVAILABLE, "DRAINING"), context)
            outcome = self.answer(request.step)
            number_of_step = request.step_id + self.wrong_by
            if isinstance(outcome, status_pb2.Status):
                yield pb.VerifyStreamResponse(step_id=number_of_step, error=in_band(outcome))
            else:
                yield pb.VerifyStreamResponse(step_id=number_of_step, result=outcome)

    def _abort(self, status: status_pb2.Status, context: Context) -> NoReturn:
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
        context.abort(code, status.message)
        raise AssertionError("abort returned")


@contextmanager
def serving(service: FakeService, socket: Path, *, registered: bool = True) -> Iterator[str]:
    """Serves on a unix socket and gives its address; without ``registered`` a server that knows no method."""
    limits = [("grpc.max_receive_message_length", INFO.limits.max_receive_message_bytes)]
    with ThreadPoolExecutor(max_workers=4) as pool:
        server = grpc.server(pool, options=limits)
        if registered:
            server.add_generic_rpc_handlers([service.handlers()])
        server.add_insecure_port(f"unix:{socket}")
        server.start()
        try:
            yield f"unix:{socket}"
        finally:
            server.stop(grace=None).wait(5)
