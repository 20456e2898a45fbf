"""Starting and stopping a service of one's own, with small scripts in its place."""

import sys
from pathlib import Path

import pytest

from engine.service import ServiceFailed, running_service


def _script(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def test_the_address_is_the_one_that_the_service_prints_and_it_is_stopped_afterwards(tmp_path: Path) -> None:
    code = f"""
import pathlib, signal, sys
def stop(*_):
    pathlib.Path({str(tmp_path / "stopped")!r}).write_text("drained")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
assert sys.argv[1] == "--listen" and sys.argv[2].startswith("unix:/")
print("something else", flush=True)
print("listening on " + sys.argv[2], flush=True)
signal.pause()
"""
    with running_service(_script(code)) as address:
        assert address.startswith("unix:/")
        assert not (tmp_path / "stopped").exists()
    assert (tmp_path / "stopped").read_text() == "drained"


def test_a_service_that_does_not_start_is_reported() -> None:
    with pytest.raises(ServiceFailed, match="status 3"), running_service(_script("import sys; sys.exit(3)")):
        pytest.fail("it never listened")


def test_a_service_that_says_nothing_is_given_up_and_ended() -> None:
    silent = _script("import time; print('starting', flush=True); time.sleep(600)")
    with (
        pytest.raises(ServiceFailed, match=r"did not listen within 0\.5 seconds"),
        running_service(silent, seconds_to_start=0.5),
    ):
        pytest.fail("it never listened")
