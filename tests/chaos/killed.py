"""Clients that are killed in the middle of what they do: nothing of them stays, and nobody else notices."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

from tests.chaos.flood import CALLERS, STEP_BYTES, STREAMS, flooding
from tests.chaos.report import Report
from tests.chaos.watched import MIB, Watched, watched

READ_AHEAD = 8

HELD_BYTES = (STREAMS * READ_AHEAD + CALLERS) * STEP_BYTES
"""What a client that is killed had the server hold. The bound on growth over all of them: half of it for each, or the
server would have forgotten none of it; and no less than the whole of it once, which the allocator may keep."""


def killed(report: Report, directory: Path, *, clients: int, seed: int) -> None:
    """Kill ``clients`` processes, each after a moment of flooding."""
    rng = Random(seed)
    with watched(directory, "--max-read-ahead", str(READ_AHEAD), "--max-streams", str(STREAMS + 1)) as server:
        before, files = server.answer(), server.files()
        # The first fills the allocator's pools.
        _kill(server, rng)
        server.wait_for_files(files)
        memory = server.rss()
        for _ in range(clients):
            _kill(server, rng)
            report.tick()
            report.done["clients killed"] += 1
            report.expect(server.wait_for_files(files) <= files, "a killed client's files stay open")
            # Needs a stream, of which there are not enough if those of the killed client count.
            report.expect(server.answer() == before, "a good step has another answer than before")
        bound = max(HELD_BYTES, clients * HELD_BYTES / 2) / MIB
        report.at_most("memory gained", (server.rss() - memory) / MIB, bound, "MiB")
        server.check_end(report)


def _kill(server: Watched, rng: Random) -> None:
    with flooding(server.address) as client:
        time.sleep(rng.uniform(0.0, 0.3))
        client.kill()
