"""A fake service on a socket of its own for each test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.fakes import FakeService, serving


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def socket() -> Iterator[Path]:
    # The path of a unix socket may have 107 bytes, and pytest's own folders are often longer.
    with tempfile.TemporaryDirectory(prefix="sampler-") as folder:
        yield Path(folder) / "s"


@pytest.fixture
def address(service: FakeService, socket: Path) -> Iterator[str]:
    with serving(service, socket) as where:
        yield where
