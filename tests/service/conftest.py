"""One server for all tests that only talk to it."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from tests.service.serving import ServerProcess, server_process


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("served")
    with server_process(
        "--backend", "cpu", "--listen", f"unix:{directory}/s", "--max-receive-mib", "8", stderr=directory / "log"
    ) as server:
        yield server
        assert server.process.poll() is None
        assert "Traceback" not in (directory / "log").read_text()


@pytest.fixture
def channel(served: ServerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(served.address, options=[("grpc.max_send_message_length", -1)]) as channel:
        yield channel
