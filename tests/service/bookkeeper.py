"""A stream under load that knows what it is owed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import grpc

from sampler_client.v1 import sampler_pb2 as pb
from tests.service.serving import CALL_SECONDS, call_stream, stream_request
from tests.service.steps import good_step

MIN_RESULTS = 10
"""More than these, and a stream was under load."""


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
        """Once the server has ended: every step that was sent has its answer, in order, and the end says why.

        Raises:
            AssertionError: With what is not as it should be.
        """
        self._thread.join(CALL_SECONDS)
        assert not self._thread.is_alive(), "the stream goes on"
        self._channel.close()
        results = [answer for answer in self.answers if answer.WhichOneof("outcome") == "result"]
        reasons = {answer.error.reason for answer in self.answers[len(results) :]}
        assert len(results) > MIN_RESULTS, f"{len(results)} results: the server ended before there was a load"
        assert isinstance(self.error, grpc.Call), "the stream ended without an error"
        assert self.error.code() is grpc.StatusCode.UNAVAILABLE, str(self.error)
        assert reasons <= {"DRAINING"}, f"refused for {reasons}"
        ids, sent = [answer.step_id for answer in self.answers], self._sent.qsize()
        assert ids == list(range(1, sent + 1)), (
            f"{sent} steps sent, answers to {len(ids)} up to {ids[-1]}; {self.error}"
        )
