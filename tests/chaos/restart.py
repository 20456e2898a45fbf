"""A server that is killed and started again: sessions find it, and seeded steps have the results they always have."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from sampler_client import (
    DraftBlock,
    RetryPolicy,
    SamplerClient,
    SamplerError,
    SamplingParams,
    Session,
    Step,
    StepResult,
)
from tests.chaos.report import Report
from tests.chaos.watched import watched

V, K, BATCH = 64, 3, 2
CALLERS = 3
PATIENT = RetryPolicy(attempts=1000, first_delay=0.02, max_delay=0.2)
STEP_SECONDS = 60.0
"""Within which every step must be answered, a start of the server included."""

DOWN_SECONDS = (2.0, 6.0)
"""Beside the two that a server takes to start."""

BACK_SECONDS = 3.0
"""From the server's first line to the first answer after it: twice the longest wait of the client before it tries again
(policy and connection, 0.2 and 1 s), and room for a busy machine."""


def step_of(number: int) -> Step:
    """A seeded step, the same whenever it is asked for."""
    rng = np.random.default_rng(number)
    return Step(
        target_logits=rng.normal(size=(BATCH * (K + 1), V)).astype(np.float32),
        draft_lengths=[K] * BATCH,
        draft_token_ids=rng.integers(0, V, BATCH * K).astype(np.int32),
        draft_blocks=[DraftBlock(rng.normal(size=(BATCH * K, V)).astype(np.float32))],
        params=[SamplingParams(temperature=0.8, top_logprobs=3)],
        seeds=[number, number + 1],
        positions=[number, number],
    )


def told(result: StepResult) -> tuple[bytes, ...]:
    """What a result says of tokens and logprobs, bit for bit."""
    logprobs = [mode for one in result.requests for mode in one.logprobs.values()]
    columns: list[npt.NDArray[Any]] = [result.token_ids, result.num_accepted, result.seeds, result.status]
    return tuple(column.tobytes() for column in [*columns, *(mode.values for mode in logprobs)])


class Caller:
    """Somebody who decodes through one session, whatever happens to the server."""

    def __init__(self, session: Session, first: int, reports: Report) -> None:
        self.results: dict[int, tuple[bytes, ...]] = {}
        self.answered = 0.0
        self._session, self._first, self._report = session, first, reports
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = self._first
        while not self._ended.is_set():
            try:
                self.results[number] = told(self._session.verify(step_of(number), timeout=STEP_SECONDS))
            except SamplerError as error:
                self._report.findings.append(f"step {number} of a session failed: {error!r}")
                return
            self.answered = time.monotonic()
            number += 1

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def restart(report: Report, directory: Path, *, kills: int, seed: int) -> None:
    """Kill the server ``kills`` times under sessions at work, then compare what they got with an undisturbed server."""
    rng = Random(seed)
    address = f"unix:{directory}/s.sock"
    with SamplerClient(address, retry=PATIENT) as client, client.session() as shared:
        callers: list[Caller] = []
        for _ in range(kills + 1):
            with watched(directory) as server:
                started = time.monotonic()
                if not callers:
                    callers = [Caller(shared, 10_000 * one, report) for one in range(CALLERS)]
                while min(one.answered for one in callers) < started and time.monotonic() - started < STEP_SECONDS:
                    time.sleep(0.01)
                report.at_most("until all were answered again", time.monotonic() - started, BACK_SECONDS, "s")
                time.sleep(rng.uniform(0.0, 0.3))
                if report.done["servers killed"] == kills:
                    for one in callers:
                        one.end()
                    _compare(report, client, callers)
                    break
                server.server.process.kill()
                report.done["servers killed"] += 1
                report.tick()
            # The longer nobody was there, the longer gRPC waits on its own before it looks again.
            time.sleep(rng.uniform(*DOWN_SECONDS))


def _compare(report: Report, client: SamplerClient, callers: list[Caller]) -> None:
    results = {number: result for one in callers for number, result in one.results.items()}
    report.done["steps"] += len(results)
    for number, result in results.items():
        report.expect(told(client.verify(step_of(number))) == result, f"step {number} has another result")
