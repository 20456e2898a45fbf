"""SamplerService: each rpc turned into a call of what does the work. Messages come and go as bytes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels.refusal import Reason as CoreReason
from sampler_service.codec.parse import parse
from sampler_service.codec.result import fill_result
from sampler_service.codec.step import StepDecoder
from sampler_service.dispatch import Dispatcher
from sampler_service.errors import Reason, Refusal, internal, refuse
from sampler_service.lifecycle import Lifecycle
from sampler_service.limits import Limits
from sampler_service.statuses import abort
from sampler_service.stream import VerifyStream

_log: Final = logging.getLogger(__name__)

SERVICE: Final = pb.DESCRIPTOR.services_by_name["SamplerService"]

Context = grpc.aio.ServicerContext[bytes, bytes]
Unary = Callable[[bytes, Context], Awaitable[bytes]]


class Servicer:
    """The rpcs.

    Args:
        info: The answer to GetServerInfo.
        limits: What is admitted.
        dispatcher: Runs the steps.
        lifecycle: Counts calls, and refuses them during a drain.
    """

    def __init__(
        self, *, info: pb.GetServerInfoResponse, limits: Limits, dispatcher: Dispatcher, lifecycle: Lifecycle
    ) -> None:
        self._info = info.SerializeToString()
        self._limits = limits
        self._dispatcher = dispatcher
        self._lifecycle = lifecycle
        self._decoder = StepDecoder(limits, info.backend)
        self._streams = 0

    def handler(self) -> grpc.GenericRpcHandler:
        """All rpcs of the contract, to be added to a server; none of them has gRPC look into a message."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        built: dict[str, Unary] = {"GetServerInfo": self._get_server_info, "Verify": self._verify}
        for method in SERVICE.methods:
            if method.client_streaming:
                methods[method.name] = grpc.stream_stream_rpc_method_handler(self._verify_stream)
            else:
                behavior = built.get(method.name) or _not_built(method.name, method.input_type.name)
                methods[method.name] = grpc.unary_unary_rpc_method_handler(self._guarded(behavior))
        return grpc.method_handlers_generic_handler(SERVICE.full_name, methods)

    def _guarded(self, behavior: Unary) -> Unary:
        """What every unary call shares: it counts as open, and ends with a status that says why."""

        async def guarded(data: bytes, context: Context) -> bytes:
            try:
                with self._lifecycle.call():
                    return await behavior(data, context)
            except Refusal as refusal:
                await abort(context, refusal.released())
            except Exception:  # noqa: BLE001  (a fault of ours is answered, never fatal)
                _log.exception("a call failed")
                await abort(context, internal())

        return guarded

    async def _get_server_info(self, data: bytes, _context: Context) -> bytes:
        parse(pb.GetServerInfoRequest, data)
        return self._info

    async def _verify(self, data: bytes, context: Context) -> bytes:
        arrived = perf_counter()
        message, tensors = parse(pb.VerifyRequest, data)
        if not message.HasField("step"):
            raise refuse(Reason.FIELD_REQUIRED, "step is missing; there is nothing to verify", field="step")
        step = self._decoder.decode(message.step, tensors, None)
        ran = await self._dispatcher.result(step, len(data), arrived, context.time_remaining())
        response = pb.VerifyResponse()
        fill_result(response.result, ran)
        return response.SerializeToString()

    async def _verify_stream(self, _requests: object, context: Context) -> None:
        try:
            with self._lifecycle.call():
                await self._run_stream(context)
        except Refusal as refusal:
            await abort(context, refusal.released())
        except Exception:  # noqa: BLE001  (a fault of ours is answered, never fatal)
            _log.exception("a stream failed")
            await abort(context, internal())

    async def _run_stream(self, context: Context) -> None:
        most = self._limits.max_streams
        if self._streams >= most:
            raise refuse(Reason.TOO_MANY_STREAMS, f"{most} streams are open, as many as this server admits")
        stream = VerifyStream(
            context,
            decoder=self._decoder,
            dispatcher=self._dispatcher,
            lifecycle=self._lifecycle,
            limits=self._limits,
        )
        self._streams += 1
        try:
            await stream.run()
        finally:
            self._streams -= 1


def _not_built(name: str, request: str) -> Unary:
    kind: type[Message] = getattr(pb, request)

    async def behavior(data: bytes, _context: Context) -> bytes:
        parse(kind, data)
        raise refuse(CoreReason.NOT_IMPLEMENTED, f"{name} is not built yet; steps go as bytes, without a session")

    return behavior
