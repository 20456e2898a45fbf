"""A stream under load that knows what it is owed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import grpc

from sampler_client.v1 import sampler_pb2 as pb
from tests.service.serving import CALL_SECONDS, call_stream, stream_request
from tests.service.steps import good_step


class Bookkeeper:
    """A client that sends as fast as it is let, and writes down what it sent and what came back."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._window = threading.Semaphore(8)
        self._ended = threading.Event()
        self._sent: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.answers: list[pb.VerifyStreamResponse] = []
        self.error: grpc.RpcError | None = None
        self._thread = threading.Thread(target=self._receive)
        self._thread.start()

    def _requests(self) -> Iterator[bytes]:
        step = good_step()
        number = 0
        while not self._ended.is_set():
            if self._window.acquire(timeout=0.1):
                number += 1
                self._sent.put(number)
                yield stream_request(step, number)

    def _receive(self) -> None:
        try:
            for answer in call_stream(self._channel, self._requests()):
                self.answers.append(answer)
                if answer.WhichOneof("outcome") == "error":
                    # The drain is known: send nothing more, take what is owed.
                    self._window = threading.Semaphore(0)
                else:
                    self._window.release()
        except grpc.RpcError as error:
            self.error = error
        self._ended.set()

    def check(self) -> None:
        self._thread.join(CALL_SECONDS)
        assert not self._thread.is_alive()
        self._channel.close()
        results = [answer for answer in self.answers if answer.WhichOneof("outcome") == "result"]
        refusals = self.answers[len(results) :]
        assert len(results) > 10
        assert isinstance(self.error, grpc.Call)
        assert self.error.code() is grpc.StatusCode.UNAVAILABLE
        assert {answer.error.reason for answer in refusals} <= {"DRAINING"}
        # In order, and every step that was sent has its answer.
        assert [answer.step_id for answer in self.answers] == list(range(1, self._sent.qsize() + 1))
