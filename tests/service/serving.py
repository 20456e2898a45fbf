"""A real server for tests, in a process of its own, and the parts of one in this process around a scripted engine."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels import StepResult
from sampler_service.dispatch import Dispatcher
from sampler_service.engine import Engine
from sampler_service.info import server_info
from sampler_service.lifecycle import Lifecycle
from sampler_service.limits import Limits
from sampler_service.server import channel_arguments
from sampler_service.servicer import Servicer
from sampler_service.steps import CheckedStep
from sampler_service.worker import Worker

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0
CALL_SECONDS = 20.0

VERIFY = "/sampler.v1.SamplerService/Verify"
VERIFY_STREAM = "/sampler.v1.SamplerService/VerifyStream"


def as_is(data: bytes) -> bytes:
    return data


def call(channel: grpc.Channel, method: str, request: bytes) -> bytes:
    """One unary call."""
    return channel.unary_unary(method, as_is, as_is)(request, timeout=CALL_SECONDS)


def call_stream(channel: grpc.Channel, requests: Iterator[bytes]) -> Iterator[pb.VerifyStreamResponse]:
    """The answers of a stream as they come."""
    answers = channel.stream_stream(VERIFY_STREAM, as_is, as_is)(requests, timeout=CALL_SECONDS)
    return map(pb.VerifyStreamResponse.FromString, answers)


def environment() -> dict[str, str]:
    """Of a server's process: our packages found as they are here, no settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SAMPLER_")}
    paths = [str(ROOT), str(ROOT / "kernels"), str(ROOT / "clients" / "python"), kept.get("PYTHONPATH", "")]
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "sampler_service", *arguments]


@dataclass
class ServerProcess:
    """A running `sampler-service serve`."""

    process: subprocess.Popen[str]
    lines: queue.Queue[str | None]
    addresses: list[str] = field(default_factory=list)

    def wait_until_serving(self, addresses: int) -> None:
        while len(self.addresses) < addresses:
            line = self.lines.get(timeout=START_SECONDS)
            assert line is not None, f"the server ended: {self.process.wait(CALL_SECONDS)}"
            assert line.startswith("listening on ")
            self.addresses.append(line.removeprefix("listening on ").rstrip("\n"))

    @property
    def address(self) -> str:
        return self.addresses[0]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(CALL_SECONDS)


@contextmanager
def server_process(
    *arguments: str, addresses: int = 1, stderr: Path | None = None, program: list[str] | None = None
) -> Iterator[ServerProcess]:
    """A server of its own, serving; ended with the block."""
    with stderr.open("w") if stderr else open(os.devnull, "w") as log:  # noqa: PTH123  (the null device)
        process = subprocess.Popen(
            [sys.executable, *program, *arguments] if program else command("serve", "--threads", "1", *arguments),
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    lines: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read_lines, args=(process, lines), daemon=True)
    reader.start()
    server = ServerProcess(process, lines)
    try:
        server.wait_until_serving(addresses)
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(CALL_SECONDS)
        reader.join(CALL_SECONDS)


def _read_lines(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    with process.stdout as stream:
        for line in stream:
            lines.put(line)
    lines.put(None)


@dataclass(frozen=True)
class ScriptedEngine(Engine):
    """An engine whose steps wait until the test lets them go; the first element of the logits names the step."""

    backend: str = "scripted"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ran: list[float] = field(default_factory=list)
    answer: Callable[[CheckedStep], StepResult] = Engine("cpu", torch.device("cpu")).run

    def run(self, checked: CheckedStep) -> StepResult:
        assert self.gate.acquire(timeout=CALL_SECONDS)
        self.ran.append(float(checked.step.target_logits[0, 0]))
        return self.answer(checked)


@dataclass
class Parts:
    """A server inside this process, on the running event loop."""

    engine: ScriptedEngine
    dispatcher: Dispatcher
    lifecycle: Lifecycle
    channel: grpc.aio.Channel
    address: str

    def verify(self, request: bytes, timeout: float = CALL_SECONDS) -> grpc.aio.UnaryUnaryCall[bytes, bytes]:
        return self.channel.unary_unary(VERIFY, as_is, as_is)(request, timeout=timeout)

    def stream(self) -> grpc.aio.StreamStreamCall[bytes, bytes]:
        return self.channel.stream_stream(VERIFY_STREAM, as_is, as_is)(timeout=CALL_SECONDS)


@asynccontextmanager
async def parts(directory: Path, **limits: int) -> AsyncIterator[Parts]:
    engine, worker, lifecycle = ScriptedEngine(), Worker(), Lifecycle()
    bounds = Limits(**limits)
    dispatcher = Dispatcher(engine, worker, bounds)
    servicer = Servicer(info=server_info(engine, bounds), limits=bounds, dispatcher=dispatcher, lifecycle=lifecycle)
    server = grpc.aio.server(options=channel_arguments(bounds, keepalive_seconds=30.0))
    server.add_generic_rpc_handlers((servicer.handler(),))
    address = f"unix:{directory}/parts.sock"
    server.add_insecure_port(address)
    worker.start()
    await server.start()
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            yield Parts(engine, dispatcher, lifecycle, channel, address)
    finally:
        await server.stop(0)
        engine.gate.release(1000)
        assert await asyncio.to_thread(worker.stop, CALL_SECONDS)


def run(test: Callable[[], Any]) -> None:
    """Run an asynchronous test to its end."""
    asyncio.run(asyncio.wait_for(test(), 2 * CALL_SECONDS))


@contextmanager
def refused(code: str, reason: str) -> Iterator[None]:
    """The block must raise a gRPC error with this code and reason."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    error = caught.value
    assert isinstance(error, grpc.Call | grpc.aio.AioRpcError)
    assert (error.code().name, (error.details() or "").partition(":")[0]) == (code, reason), error.details()


def small_step(mark: float = 0.0) -> pb.Step:
    """One request without drafts over two tokens; ``mark`` is its first logit."""
    logits = torch.tensor([[mark, 0.0]]).numpy().tobytes()
    return pb.Step(
        target_logits=pb.Tensor(shape=[1, 2], inline_bytes=logits), draft_lengths=[0], seeds=[7], positions=[3]
    )


def stream_request(step: pb.Step, step_id: int, timeout_us: int = 0) -> bytes:
    return pb.VerifyStreamRequest(step_id=step_id, step=step, timeout_us=timeout_us).SerializeToString()


def unary_request(step: pb.Step) -> bytes:
    return pb.VerifyRequest(step=step).SerializeToString()
