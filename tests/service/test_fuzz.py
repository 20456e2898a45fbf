"""Fuzz in small: steps bent at random, and bytes bent at random, over one stream that must outlive them all."""

from __future__ import annotations

import contextlib
import random

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sampler_client.v1 import sampler_pb2 as pb
from sampler_service.errors import TABLE
from tests.service.serving import VERIFY, call, call_stream, stream_request, unary_request
from tests.service.steps import MISTAKES, good_step

FORGIVEN = {"INTERNAL_ERROR", "DRAINING", "QUEUE_FULL", "STEP_DEADLINE_EXCEEDED", "TOO_MANY_STREAMS"}
"""Reasons that are never the fault of a step's content."""


def bent(seed: int) -> bytes:
    """A step with up to three mistakes at once, then a few bytes changed, cut off or doubled."""
    rng = random.Random(seed)
    step = good_step()
    for mistake in rng.sample(MISTAKES, rng.randrange(4)):
        # An earlier mistake may have removed what this one wants to change.
        with contextlib.suppress(IndexError):
            mistake.change(step)
    data = bytearray(stream_request(step, seed % 1000))
    for _ in range(rng.choice([0, 0, 1, 3, 20])):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                del data[at:]
                data += b"\0"
            case 2:
                data[at:at] = data[at : at + rng.randrange(40)]
            case 3:
                data[at:at] = b"\xff" * rng.randrange(12)
    return bytes(data)


def check(answer: pb.VerifyStreamResponse) -> None:
    if answer.WhichOneof("outcome") == "error":
        error = answer.error
        assert error.reason in set(TABLE) - FORGIVEN, error.message
        assert error.code == TABLE[error.reason].code.value[0]
        assert error.message.startswith(f"{error.reason}: ")
    else:
        assert answer.WhichOneof("outcome") == "result"
        assert len(answer.result.cu_tokens) == len(answer.result.status) + 1


@pytest.mark.parametrize("part", range(4))
def test_stream(channel: grpc.Channel, part: int) -> None:
    requests = [bent(1000 * part + i) for i in range(150)]
    answers = list(call_stream(channel, iter(requests)))
    assert len(answers) == len(requests)
    for answer in answers:
        check(answer)


def check_unary(channel: grpc.Channel, request: bytes) -> None:
    try:
        call(channel, VERIFY, request)
    except grpc.RpcError as error:
        text = str(error)
        assert any(f"{reason}: " in text for reason in set(TABLE) - FORGIVEN), text


def test_unary(channel: grpc.Channel) -> None:
    for seed in range(150):
        check_unary(channel, bent(10_000 + seed))
    call(channel, VERIFY, unary_request(good_step()))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5))
def test_noise(channel: grpc.Channel, noise: list[bytes]) -> None:
    answers = list(call_stream(channel, iter([*noise, stream_request(good_step(), 1)])))
    for answer in answers:
        check(answer)
    assert answers[-1].WhichOneof("outcome") == "result"
