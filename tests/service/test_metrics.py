"""Figures for Prometheus: they count what is answered, say what is going on, and are only for this host."""

from __future__ import annotations

import queue
import socket
import urllib.request
from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.service.serving import (
    CALL_SECONDS,
    VERIFY,
    call,
    call_stream,
    refused,
    server_process,
    stream_request,
    unary_request,
)
from tests.service.steps import good_step
from tests.service.test_serving import ran


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def figures(port: int) -> dict[str, float]:
    """Each figure by name; refusals by their reason."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=CALL_SECONDS) as answer:
        text = answer.read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    told = [one for one in samples if "le" not in one.labels and not one.name.endswith("_created")]
    return {one.labels.get("reason", one.name): one.value for one in told}


def test_figures(tmp_path: Path) -> None:
    port = free_port()
    arguments = ("--listen", f"unix:{tmp_path}/s", "--backend", "cpu", "--metrics", f"127.0.0.1:{port}")
    with server_process(*arguments) as server, grpc.insecure_channel(server.address) as channel:
        assert figures(port)["sampler_steps_total"] == 0
        call(channel, VERIFY, unary_request(good_step()))
        with refused("INVALID_ARGUMENT", "FIELD_REQUIRED"):
            call(channel, VERIFY, b"")
        answers = call_stream(channel, iter([stream_request(good_step(), 1), b"", b"\xff"]))
        emitted = len(next(answers).result.token_ids)
        list(answers)
        found = figures(port)
        assert (found["sampler_steps_total"], found["sampler_requests_total"]) == (2, 4)
        assert found["sampler_tokens_total"] == 2 * emitted
        assert found["sampler_accepted_tokens_total"] == 2 * (emitted - 2)
        assert (found["FIELD_REQUIRED"], found["MALFORMED_MESSAGE"], found["QUEUE_FULL"]) == (2, 1, 0)
        for name in ("queue", "device", "step"):
            assert found[f"sampler_{name}_seconds_count"] == 2
        parts = found["sampler_queue_seconds_sum"] + found["sampler_device_seconds_sum"]
        assert 0 < parts <= found["sampler_step_seconds_sum"] < CALL_SECONDS
        assert found["sampler_queued_steps"] == found["sampler_queued_bytes"] == 0
        waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        waiting.put(stream_request(good_step(), 1))
        open_stream = call_stream(channel, iter(waiting.get, b""))
        next(open_stream)
        assert figures(port)["sampler_streams"] == 1
        waiting.put(b"")
        assert not list(open_stream)
        assert server.end() == 0


@pytest.mark.parametrize(
    ("address", "text"),
    [("0.0.0.0:0", "could be read from other hosts"), ("127.0.0.1", "is no address"), ("taken", "another process")],
)
def test_addresses_that_cannot_be(tmp_path: Path, address: str, text: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        if address == "taken":
            address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = ran("serve", "--listen", f"unix:{tmp_path}/s", "--backend", "cpu", "--metrics", address)
    assert done.returncode == 1
    assert text in done.stderr


def test_without_the_setting_the_package_is_not_needed(tmp_path: Path) -> None:
    program = ["-c", WITHOUT]
    with server_process("--listen", f"unix:{tmp_path}/s", "--backend", "cpu", program=program) as server:
        assert server.end() == 0


WITHOUT = """
import sys
sys.modules["prometheus_client"] = None
from sampler_service import cli
cli.main(["serve", *sys.argv[1:]])
"""
