"""A client in a process of its own that loads a server until somebody stops it: python -m tests.chaos.flood ADDRESS."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from sampler_client.v1 import sampler_pb2 as pb
from tests.service.serving import (
    CALL_SECONDS,
    ROOT,
    START_SECONDS,
    VERIFY,
    VERIFY_STREAM,
    as_is,
    environment,
    stream_request,
    unary_request,
)

STREAMS, CALLERS = 3, 3
WINDOW = 16
"""Steps that a stream sends ahead of their answers: more than the server reads ahead."""

ROWS, COLUMNS, TOP = 8, 8192, 256
STEP_BYTES = ROWS * COLUMNS * 4


def large_step() -> pb.Step:
    """A step of a quarter of a MiB, so that a process that is killed dies in the middle of a message."""
    logits = pb.Tensor(shape=[ROWS, COLUMNS], inline_bytes=bytes(STEP_BYTES))
    params = [pb.SamplingParams(top_logprobs=TOP)]
    return pb.Step(
        target_logits=logits, draft_lengths=[0] * ROWS, params=params, seeds=range(ROWS), positions=[1] * ROWS
    )


@contextmanager
def flooding(address: str) -> Iterator[subprocess.Popen[str]]:
    """A process with streams and unary callers in full swing; killed with the block."""
    command = [sys.executable, "-m", "tests.chaos.flood", address]
    client = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    with client.stdout as output:
        try:
            timer = threading.Timer(START_SECONDS, client.kill)
            timer.start()
            assert output.readline() == "flooding\n"
            timer.cancel()
            yield client
        finally:
            client.kill()
            client.wait(CALL_SECONDS)


def main(address: str) -> None:
    """Flood until killed; says so once every caller and stream has had an answer."""
    step = large_step()
    begun = threading.Semaphore(0)
    with grpc.insecure_channel(address) as channel:
        for target in [_stream] * STREAMS + [_calls] * CALLERS:
            threading.Thread(target=target, args=(channel, step, begun), daemon=True).start()
        for _ in range(STREAMS + CALLERS):
            begun.acquire()
        print("flooding", flush=True)
        threading.Event().wait()


def _stream(channel: grpc.Channel, step: pb.Step, begun: threading.Semaphore) -> None:
    window = threading.Semaphore(WINDOW)
    request = stream_request(step, 1)

    def requests() -> Iterator[bytes]:
        while window.acquire():
            yield request

    for _ in channel.stream_stream(VERIFY_STREAM, as_is, as_is)(requests()):
        begun.release()
        window.release()


def _calls(channel: grpc.Channel, step: pb.Step, begun: threading.Semaphore) -> None:
    request, verify = unary_request(step), channel.unary_unary(VERIFY, as_is, as_is)
    while True:
        verify(request)
        begun.release()


if __name__ == "__main__":
    main(sys.argv[1])
