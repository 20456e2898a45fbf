"""Messages that ask for much: refused before they cost much."""

from __future__ import annotations

import time

import grpc
import numpy as np
import pytest

from sampler_client.v1 import sampler_pb2 as pb
from sampler_service.codec.lift import MAX_FIELDS, lift
from sampler_service.codec.parse import parse
from sampler_service.codec.step import StepDecoder
from sampler_service.codec.tensors import TensorReader
from sampler_service.errors import Refusal
from sampler_service.limits import Limits
from tests.service.serving import VERIFY, call, refused, unary_request
from tests.service.steps import good_step


def field(number: int, content: bytes) -> bytes:
    size, length = len(content), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2]) + bytes(length) + bytes([size]) + content


STEP_OF_EMPTY_PARAMS = field(1, b"\x3a\x00" * 2_000_000)
STEP_OF_EMPTY_BLOCKS = field(1, b"\x2a\x00" * 2_000_000)
REGIONS_BY_TURNS = field(1, field(2, b"\x2a\x00\x22\x00" * 1_000_000))
UNPACKED_NUMBERS = field(1, b"\x18\x01" * 2_000_000)
NUMBERS_OUTSIDE = b"\x50\x01" * 2_000_000


@pytest.mark.parametrize(
    "data",
    [STEP_OF_EMPTY_PARAMS, STEP_OF_EMPTY_BLOCKS, REGIONS_BY_TURNS, UNPACKED_NUMBERS, NUMBERS_OUTSIDE],
    ids=["params", "blocks", "regions", "unpacked", "unknown"],
)
def test_millions_of_fields_are_refused_unparsed(channel: grpc.Channel, data: bytes) -> None:
    with refused("INVALID_ARGUMENT", "LIMIT_EXCEEDED"):
        call(channel, VERIFY, data)


def test_counting_gives_up_early() -> None:
    # 65,536 fields at under 2 us each, and ten times that for a machine under load; four million would take longer.
    data = field(1, b"\x3a\x00" * 4_000_000)
    started = time.perf_counter()
    with pytest.raises(Refusal):
        lift(pb.VerifyRequest, data)
    assert time.perf_counter() - started < MAX_FIELDS * 20e-6


@pytest.mark.parametrize("noise", [b"\x00", b"\xff", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b"])
def test_counting_survives_nonsense(noise: bytes) -> None:
    data = noise * (200_000 // len(noise))
    with pytest.raises(Refusal) as caught:
        parse(pb.VerifyRequest, data)
    assert caught.value.reason in ("MALFORMED_MESSAGE", "LIMIT_EXCEEDED")


def test_a_large_good_step_passes() -> None:
    step = good_step()
    step.target_logits.CopyFrom(pb.Tensor(shape=[5, 100_000], inline_bytes=bytes(2_000_000)))
    message, _ = parse(pb.VerifyRequest, unary_request(step))
    assert message.step.target_logits.shape == [5, 100_000]


@pytest.mark.parametrize(
    ("params", "named"),
    [
        (pb.SamplingParams(stop_token_ids=[0] * 1025), "stop_token_ids"),
        (pb.SamplingParams(logprob_token_ids=[0] * 1025), "logprob_token_ids"),
        (pb.SamplingParams(synthetic_rates=[0.5] * 4097), "synthetic_rates"),
        (pb.SamplingParams(bad_words=pb.BadWords(token_ids=[0] * 4097, lengths=[1] * 4097)), "bad_words.lengths"),
        (pb.SamplingParams(bad_words=pb.BadWords(token_ids=[0] * 129, lengths=[129])), "bad_words"),
        (
            pb.SamplingParams(logit_bias=pb.LogitBias(token_ids=range(16_385), values=[0.0] * 16_385)),
            "logit_bias",
        ),
        (
            pb.SamplingParams(allowed_token_ids_by_row=pb.AllowedTokenIdsByRow(token_ids=[0] * 130, lengths=[1] * 130)),
            "allowed_token_ids_by_row.lengths",
        ),
    ],
)
def test_long_lists(params: pb.SamplingParams, named: str) -> None:
    step = good_step()
    step.params[1].CopyFrom(params)
    with pytest.raises(Refusal) as caught:
        StepDecoder(Limits()).decode(step, TensorReader(None, step.ByteSize()), None)
    assert caught.value.reason == "LIMIT_EXCEEDED"
    assert f"params[1].{named}" in caught.value.message
    assert caught.value.request == 1


def test_many_ids_of_a_bias_twice_take_no_quadratic_time() -> None:
    step = good_step()
    ids = [*range(16_383), 16_382]
    step.params[1].logit_bias.CopyFrom(pb.LogitBias(token_ids=ids, values=np.zeros(16_384).tolist()))
    started = time.perf_counter()
    with pytest.raises(Refusal, match="16382 twice"):
        StepDecoder(Limits()).decode(step, TensorReader(None, step.ByteSize()), None)
    # Looking every id up among those before it would take seconds; this takes milliseconds.
    assert time.perf_counter() - started < 1.0
