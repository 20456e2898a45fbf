"""The client for threads against a fake service, over real gRPC."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from google.rpc import status_pb2

import sampler_client
from sampler_client import (
    NO_RETRIES,
    Cancelled,
    DeadlineExceeded,
    InvalidStep,
    NotImplementedByServer,
    ResourceExhausted,
    RetryPolicy,
    SamplerClient,
    ServerFault,
    Unavailable,
)
from sampler_client.v1 import sampler_pb2 as pb
from tests.client.fakes import FakeService, Outcome, accept_all, refusal, serving
from tests.client.steps import step

AT_ONCE = RetryPolicy(attempts=4, first_delay=0.001)


def failing(times: int, status: status_pb2.Status) -> Callable[[pb.Step], Outcome]:
    left = [status] * times
    return lambda request: left.pop() if left else accept_all(request)


def test_verify(address: str, service: FakeService) -> None:
    with SamplerClient(address) as client:
        result = client.verify(step([2, 0]))
    assert [request.token_ids.tolist() for request in result.requests] == [[1, 1, 0], [0]]
    assert result.backend == "fake"
    assert list(service.steps[0].draft_lengths) == [2, 0]


def test_one_liner(address: str) -> None:
    assert sampler_client.verify(address, step([1])).requests[0].num_accepted == 1


def test_server_info(address: str, service: FakeService) -> None:
    with SamplerClient(address, metadata=[("authorization", "Bearer x")]) as client:
        info = client.server_info()
    assert (info.version, info.backend, info.device.name, info.device.mps_state) == ("0.1.0", "cpu", "a processor", "")
    assert info.logits_dtypes == ("float32", "bfloat16")
    assert (info.methods, info.logprobs_modes, info.planes) == (("standard",), ("raw_logprobs",), ("bytes",))
    assert info.features == ("stream", "kept_state")
    assert (info.limits.max_batch_size, info.limits.max_regions_per_session) == (512, 0)
    assert service.metadata["authorization"] == "Bearer x"


def test_refusal_is_typed(address: str, service: FakeService) -> None:
    service.answer = lambda _: refusal(grpc.StatusCode.INVALID_ARGUMENT, "SHAPE_MISMATCH", field="target_logits")
    with SamplerClient(address) as client, pytest.raises(InvalidStep) as refused:
        client.verify(step())
    assert (refused.value.reason, refused.value.fields[0].field) == ("SHAPE_MISMATCH", "target_logits")
    assert len(service.steps) == 1


def test_step_that_cannot_be_encoded_is_not_sent(address: str, service: FakeService) -> None:
    with SamplerClient(address) as client, pytest.raises(InvalidStep):
        client.verify(sampler_client.Step(target_logits=[1.0], draft_lengths=[0]))
    assert not service.steps


def test_what_grpc_itself_refuses_is_typed(address: str, service: FakeService) -> None:
    with SamplerClient(address, retry=AT_ONCE) as client, pytest.raises(ResourceExhausted) as refused:
        client.verify(step([100], vocab_size=10_000))
    assert refused.value.reason == "RESOURCE_EXHAUSTED"
    assert not service.steps


def test_answer_larger_than_allowed(address: str) -> None:
    with SamplerClient(address, max_answer_bytes=10) as client, pytest.raises(ResourceExhausted):
        client.verify(step())


def test_method_that_a_server_does_not_have(socket: Path) -> None:
    with (
        serving(FakeService(), socket, registered=False) as address,
        SamplerClient(address) as client,
        pytest.raises(NotImplementedByServer),
    ):
        client.verify(step())


def test_seeded_step_is_retried_until_answered(address: str, service: FakeService) -> None:
    service.answer = failing(3, refusal(grpc.StatusCode.UNAVAILABLE, "DRAINING"))
    with SamplerClient(address, retry=AT_ONCE) as client:
        assert client.verify(step()).requests[0].num_accepted == 2
    assert len(service.steps) == 4


def test_attempts_are_bounded(address: str, service: FakeService) -> None:
    service.answer = failing(4, refusal(grpc.StatusCode.UNAVAILABLE, "DRAINING"))
    with SamplerClient(address, retry=AT_ONCE) as client, pytest.raises(Unavailable):
        client.verify(step())
    assert len(service.steps) == 4


def test_step_without_seed_is_sent_once(address: str, service: FakeService) -> None:
    service.answer = failing(1, refusal(grpc.StatusCode.UNAVAILABLE, "DRAINING"))
    with SamplerClient(address, retry=AT_ONCE) as client, pytest.raises(Unavailable):
        client.verify(step(seeded=False))
    assert len(service.steps) == 1


def test_full_server_is_tried_again_where_it_says_when(address: str, service: FakeService) -> None:
    service.answer = failing(1, refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", retry_ms=60))
    with SamplerClient(address, retry=AT_ONCE) as client:
        began = time.monotonic()
        client.verify(step())
    assert time.monotonic() - began >= 0.06


def test_no_retry_that_would_miss_the_deadline(address: str, service: FakeService) -> None:
    service.answer = failing(1, refusal(grpc.StatusCode.UNAVAILABLE, "DRAINING", retry_ms=60_000))
    with SamplerClient(address, retry=AT_ONCE) as client, pytest.raises(Unavailable):
        client.verify(step())
    assert len(service.steps) == 1


def test_deadline(address: str, service: FakeService) -> None:
    def slow(request: pb.Step) -> Outcome:
        time.sleep(0.5)
        return accept_all(request)

    service.answer = slow
    with SamplerClient(address) as client, pytest.raises(DeadlineExceeded):
        client.verify(step(), timeout=0.05)


def test_nobody_there(socket: Path) -> None:
    with SamplerClient(f"unix:{socket}", retry=NO_RETRIES) as client:
        with pytest.raises(Unavailable):
            client.verify(step())
        with pytest.raises(Unavailable):
            client.server_info()


def test_server_that_comes_later(socket: Path, service: FakeService) -> None:
    policy = RetryPolicy(attempts=20, first_delay=0.2, max_delay=0.2)
    with SamplerClient(f"unix:{socket}", retry=NO_RETRIES) as client, pytest.raises(Unavailable):
        client.verify(step())
    with SamplerClient(f"unix:{socket}", retry=policy) as client, serving(service, socket):
        assert client.verify(step()).requests[0].num_accepted == 2


def test_unreadable_answer(address: str, service: FakeService, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    def broken(_: pb.Step) -> Outcome:
        raise RuntimeError("a fault of the server")

    service.answer = broken
    with SamplerClient(address) as client, pytest.raises(ServerFault):
        client.verify(step())


def test_closed_client(address: str) -> None:
    client = SamplerClient(address)
    client.close()
    with pytest.raises(Cancelled):
        client.verify(step())
