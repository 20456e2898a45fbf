"""Figures for Prometheus, behind the setting ``metrics``; off by default, and then nothing is counted at all.

Every answer passes through :meth:`Metrics.answered`, on the event loop. Depth, bytes and streams are read from their
owners when somebody asks.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from sampler_service.errors import TABLE, Refusal
from sampler_service.listen import CannotListen, host_port, is_loopback
from sampler_service.steps import Ran

_SECONDS: Final = tuple(step * scale for scale in (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0) for step in (1, 2.5, 5))
"""Upper ends of the buckets of latencies: three in a decade, from 10 us to 5 s."""


class Watched(Protocol):
    """What is read when somebody asks."""

    @property
    def steps(self) -> int:
        """Steps admitted and not yet finished."""

    @property
    def bytes(self) -> int:
        """Bytes of their messages."""


class Metrics:
    """Counts what the service answers.

    Attributes:
        registry: Of all figures; what is asked for over HTTP.
    """

    def __init__(self, admission: Watched, streams: Callable[[], int]) -> None:
        self.registry: Final = CollectorRegistry()
        self._steps = self._counter("steps", "Steps answered with a result.")
        self._requests = self._counter("requests", "Requests in those steps.")
        self._tokens = self._counter("tokens", "Tokens emitted for them.")
        self._accepted = self._counter("accepted_tokens", "Draft tokens among those.")
        self._refusals = Counter(
            "sampler_refusals", "Calls and steps refused, by reason.", ["reason"], registry=self.registry
        )
        for reason in TABLE:
            self._refusals.labels(reason)
        self._queue = self._histogram("queue", "From the arrival of a step to the start of its work on the device.")
        self._device = self._histogram("device", "The work on the device, inputs brought there and results back.")
        self._total = self._histogram("step", "From the arrival of a step to its result, as the server sees it.")
        self._gauge("queued_steps", "Steps admitted and not yet finished.", lambda: admission.steps)
        self._gauge("queued_bytes", "Bytes of their messages.", lambda: admission.bytes)
        self._gauge("streams", "Streams open.", streams)

    def answered(self, outcome: Ran | Refusal) -> None:
        """Count an answer, whether it is a result or a refusal."""
        if isinstance(outcome, Refusal):
            self._refusals.labels(outcome.reason).inc()
            return
        result = outcome.result
        self._steps.inc()
        self._requests.inc(len(result.num_accepted))
        self._tokens.inc(len(result.token_ids))
        self._accepted.inc(int(result.num_accepted.sum()))
        self._queue.observe(outcome.started - outcome.arrived)
        times = result.timings
        self._device.observe((times.upload_us + times.device_us + times.download_us) * 1e-6)
        self._total.observe(perf_counter() - outcome.arrived)

    def serve(self, address: str) -> Callable[[], None]:
        """Answer over HTTP, on a thread of its own.

        Args:
            address: ``host:port`` of a loopback interface: the figures are for this host.

        Returns:
            What ends it.

        Raises:
            CannotListen: The address cannot be had.
        """
        host, port = host_port(address)
        if not is_loopback(host):
            raise CannotListen(f"metrics on {address} could be read from other hosts; use 127.0.0.1:port")
        try:
            server, thread = start_http_server(port, host.strip("[]"), self.registry)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            why = "another process is listening there" if in_use else error.strerror or str(error)
            raise CannotListen(f"cannot serve metrics on {address}: {why}") from error

        def end() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return end

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"sampler_{name}", text, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"sampler_{name}_seconds", text, buckets=_SECONDS, registry=self.registry)

    def _gauge(self, name: str, text: str, read: Callable[[], int]) -> None:
        Gauge(f"sampler_{name}", text, registry=self.registry).set_function(read)
