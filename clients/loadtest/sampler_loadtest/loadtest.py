"""A whole load test: service and echo in turn, and the report."""

from __future__ import annotations

import datetime as dt
import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import google.protobuf
import grpc
import numpy as np

from sampler_client import ServerInfo
from sampler_client.client import SamplerClient
from sampler_loadtest import __version__
from sampler_loadtest.addresses import is_local, is_unix
from sampler_loadtest.callers import Caller, EchoCaller, ServiceCaller, answer_bytes, messages_of
from sampler_loadtest.echo import echo_server
from sampler_loadtest.runner import Extent, run_phase
from sampler_loadtest.samples import Phase
from sampler_loadtest.summary import compared, summary
from sampler_loadtest.workload import Workload

MOST_CALLERS: Final = 256
"""Threads and connections at most."""

Progress = Callable[[str, int, int], None]
"""Told now and then: whose turn it is, the number of the turn, and how many calls of it have ended."""


@dataclass(frozen=True, kw_only=True)
class LoadTest:
    """What to do.

    Attributes:
        address: Of the service.
        workload: The steps.
        stream: Over streams; else by unary calls.
        concurrency: Callers, each with a thread and a connection.
        extent: Of all turns of one side together.
        turns: Service and echo take this many turns each.
        warmup: Calls of each caller before the first turn, which are not counted.
        echo: Whether the echo is measured too. It is only where the service is on this host.
        timeout: Seconds for each call.
    """

    address: str
    workload: Workload = field(default_factory=Workload)
    stream: bool = True
    concurrency: int = 1
    extent: Extent = field(default_factory=lambda: Extent(count=1000))
    turns: int = 4
    warmup: int = 20
    echo: bool = True
    timeout: float = 30.0

    def run(self, on_progress: Progress | None = None) -> dict[str, Any]:
        """Runs it.

        Returns:
            The report, ready for JSON: ``load``, ``machine``, ``server``, ``service``, and with the echo ``echo`` and
            ``compared``.

        Raises:
            CallFailed: The service cannot be reached, or does not answer the very first call.
            SamplerError: It does not say what it is.
        """
        steps = self.workload.steps()
        messages = messages_of(steps, stream=self.stream)
        size = answer_bytes(self.address, messages, stream=self.stream, timeout=self.timeout)
        with SamplerClient(self.address, timeout=self.timeout) as client:
            server = client.server_info()
        sides: dict[str, list[Caller]] = {}
        phases: dict[str, list[Phase]] = {}
        load_before = os.getloadavg()[0]
        with ExitStack() as stack:
            how: dict[str, Any] = {"stream": self.stream, "timeout": self.timeout}
            sides["service"] = [ServiceCaller(self.address, steps, **how) for _ in range(self.concurrency)]
            if self.echo and is_local(self.address):
                address = stack.enter_context(echo_server(size, unix=is_unix(self.address)))
                sides["echo"] = [EchoCaller(address, messages, **how) for _ in range(self.concurrency)]
            for caller in (caller for callers in sides.values() for caller in callers):
                stack.callback(caller.close)
            for callers in sides.values():
                run_phase(callers, Extent(count=self.warmup * self.concurrency))
            extent = self._turn()
            for turn in range(self.turns):
                for side, callers in sides.items():
                    told = partial(on_progress, side, turn) if on_progress else None
                    phase = run_phase(callers, extent, told, first_call=turn * extent.count)
                    phases.setdefault(side, []).append(phase)
        return self._report(phases, server, len(messages[0]), size, load_before)

    def _turn(self) -> Extent:
        """The share of one turn."""
        count = max(self.extent.count // self.turns, 1)
        seconds = None if self.extent.seconds is None else self.extent.seconds / self.turns
        return replace(self.extent, count=count, seconds=seconds)

    def _report(
        self, phases: dict[str, list[Phase]], server: ServerInfo, sent: int, received: int, load_before: float
    ) -> dict[str, Any]:
        report: dict[str, Any] = {
            "what": "load test of sampler-service; times in microseconds",
            "date": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
            "load": {
                **asdict(self.workload),
                "method": self.workload.method.value,
                "transport": ("stream" if self.stream else "unary") + (" on a unix socket" * is_unix(self.address)),
                "concurrency": self.concurrency,
                "count": self.extent.count if self.extent.seconds is None else None,
                "seconds": self.extent.seconds,
                "rate": self.extent.rate,
                "pause": self.extent.pause,
                "turns": self.turns,
                "message_bytes": sent,
                "answer_bytes": received,
            },
            "machine": {"load_before": load_before, "load_after": os.getloadavg()[0], **machine()},
            "server": {"version": server.version, "backend": server.backend, "device": server.device.name},
        }
        for side, turns in phases.items():
            report[side] = summary(Phase.joined(turns), self.workload.batch)
        if "echo" in phases:
            report["compared"] = compared(phases["service"], phases["echo"])
        return report


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    info = Path("/proc/cpuinfo")
    lines: Sequence[str] = info.read_text().splitlines() if info.exists() else ()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        "grpcio": grpc.__version__,
        "protobuf": google.protobuf.__version__,
        "numpy": np.__version__,
        "sampler_loadtest": __version__,
    }
