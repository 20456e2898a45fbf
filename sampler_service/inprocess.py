"""A step without a network: the client's messages, the service's codec, the core. What a step file is run with."""

from __future__ import annotations

from time import perf_counter

from sampler_client import SamplerError, Step, StepResult
from sampler_client.codec.request import encode_verify_request
from sampler_client.codec.response import decode_verify_response
from sampler_client.codec.status import status_error
from sampler_client.v1 import sampler_pb2 as pb
from sampler_service.codec.parse import parse
from sampler_service.codec.result import fill_result
from sampler_service.codec.step import StepDecoder
from sampler_service.engine import Engine
from sampler_service.errors import Refusal
from sampler_service.limits import Limits
from sampler_service.statuses import rpc_status
from sampler_service.steps import Ran


class InProcess:
    """Verifies steps in the caller's thread, byte for byte as a service on this machine would.

    Args:
        engine: Runs the steps.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._decoder = StepDecoder(Limits(), engine.backend)

    def verify(self, step: Step) -> StepResult:
        """Verify one step.

        Raises:
            SamplerError: The step is refused, as over the wire.
        """
        arrived = perf_counter()
        try:
            message, tensors = parse(pb.VerifyRequest, encode_verify_request(step))
            decoded = self._decoder.decode(message.step, tensors, None)
            started = perf_counter()
            ran = Ran(decoded.step, self._engine.run(decoded), arrived, started)
        except Refusal as refusal:
            raise _error(refusal) from None
        response = pb.VerifyResponse()
        fill_result(response.result, ran)
        return decode_verify_response(response.SerializeToString())


def _error(refusal: Refusal) -> SamplerError:
    return status_error(rpc_status(refusal))
