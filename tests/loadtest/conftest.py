"""A real service for the load test to load."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.serving import server_process


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("served")
    with server_process("--listen", f"unix:{directory}/s") as server:
        yield server.address
