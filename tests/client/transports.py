"""Ways to run a step without a service."""

from __future__ import annotations

from sampler_client import Step, StepResult
from sampler_client.codec.request import encode_verify_request
from sampler_client.codec.response import decode_result
from sampler_client.v1 import sampler_pb2 as pb
from tests.client.fakes import accept_all


def accepting(step: Step) -> StepResult:
    """Every draft token stands, through the bytes of both messages."""
    return decode_result(accept_all(pb.VerifyRequest.FromString(encode_verify_request(step)).step))
