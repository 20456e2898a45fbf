"""Thousands of bent messages, unary and in streams: each gets the right answer, and nothing of them stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import grpc
from google.rpc import error_details_pb2, status_pb2

from sampler_client.v1 import sampler_pb2 as pb
from sampler_service.errors import TABLE
from tests.chaos.mutations import RESULT, Bent, bend
from tests.chaos.report import Report
from tests.chaos.watched import MIB, Watched, watched
from tests.service.serving import VERIFY, call, call_stream

BATCH = 100
"""Messages of a stream before the next one is opened, and unary calls between two streams."""

WARM_UP_CALLS = 1500
"""Calls before memory is measured, in which the allocator's pools and the caches of protobuf and torch fill."""

LEAK_BYTES = 512
"""Growth allowed, in bytes a call: half of the smallest good message (1.1 kB), so that one kept for each call shows."""

NOISE_BYTES = 1 * MIB
"""Growth allowed beside that, for fragmentation: three times what 5,000 calls were seen to add after the warm-up."""


def fuzz(report: Report, directory: Path, *, calls: int, seed: int, program: list[str] | None = None) -> None:
    """Send ``calls`` bent messages to a server, and watch what it answers and what it keeps."""
    rng = Random(seed)
    with watched(directory, "--max-receive-mib", "1", program=program) as server:
        before = server.answer()
        _send(Report(), server, rng, WARM_UP_CALLS)
        files, memory = server.files(), server.rss()
        _send(report, server, rng, calls)
        report.at_most("memory gained", (server.rss() - memory) / MIB, (NOISE_BYTES + calls * LEAK_BYTES) / MIB, "MiB")
        report.at_most("files gained", server.wait_for_files(files) - files, 0, "")
        _oversize(report, server)
        report.expect(server.answer() == before, "a good step has another answer than before")
        server.check_end(report)


def _send(report: Report, server: Watched, rng: Random, calls: int) -> None:
    with grpc.insecure_channel(server.address) as channel:
        while calls > 0:
            _stream(report, channel, rng, min(calls, BATCH))
            calls -= BATCH
            _unary(report, channel, rng, max(min(calls, BATCH), 0))
            calls -= BATCH


def _stream(report: Report, channel: grpc.Channel, rng: Random, calls: int) -> None:
    sent = [bend(rng, pb.VerifyStreamRequest(step_id=rng.randrange(1, 2**64))) for _ in range(calls)]
    answered = 0
    try:
        for bent, answer in zip(sent, call_stream(channel, (one.data for one in sent)), strict=False):
            answered += 1
            error = answer.error
            _check(report, bent, error.reason, error.code, error.message)
            report.expect(answer.step_id == bent.step_id, f"{bent.name}: answer to {answer.step_id}")
    except grpc.RpcError as error:
        report.findings.append(f"a stream of fuzz ended: {error}")
    report.expect(answered == calls, f"{calls} messages of a stream, {answered} answers")


def _unary(report: Report, channel: grpc.Channel, rng: Random, calls: int) -> None:
    for _ in range(calls):
        bent = bend(rng, pb.VerifyRequest())
        try:
            call(channel, VERIFY, bent.data)
        except grpc.RpcError as error:
            _check(report, bent, *_refusal(error))
        else:
            _check(report, bent, RESULT, 0, "")


def _check(report: Report, bent: Bent, reason: str, code: int, text: str) -> None:
    report.tick()
    report.done[bent.name] += 1
    if report.expect(reason in bent.allowed, f"{bent.name}: {reason or 'a result'}, not one of {sorted(bent.allowed)}"):
        right = code == (TABLE[reason].code.value[0] if reason else 0) and text.startswith(reason)
        report.expect(right, f"{bent.name}: {reason} came with code {code} and text {text!r}")


def _refusal(error: grpc.RpcError) -> tuple[str, int, str]:
    """Reason, code and text; without a reason in the details the code's name, which is never allowed as one."""
    assert isinstance(error, grpc.Call)
    code: int = error.code().value[0]
    reasons = [info.reason for info in _details(error)] or [error.code().name]
    return reasons[0], code, error.details() or ""


def _details(error: grpc.Call) -> Iterator[error_details_pb2.ErrorInfo]:
    data = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    assert isinstance(data, bytes)
    for detail in status_pb2.Status.FromString(data).details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            yield info


def _oversize(report: Report, server: Watched) -> None:
    """What is larger than the server takes is gRPC's to refuse; its stream ends, others on the connection do not."""
    large = bytes(MIB + 1)
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(server.address, options=options) as channel:
        living = call_stream(channel, iter([b"", b""]))
        next(living)
        for send in (lambda: call(channel, VERIFY, large), lambda: list(call_stream(channel, iter([large])))):
            report.done["oversize"] += 1
            try:
                send()
            except grpc.RpcError as error:
                said = _refusal(error)[0]
                report.expect(said == grpc.StatusCode.RESOURCE_EXHAUSTED.name, f"oversize: {said}")
            else:
                report.findings.append("oversize: a result")
        report.expect(next(living).error.reason == "FIELD_REQUIRED", "oversize: another stream ended with it")
