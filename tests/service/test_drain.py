"""Drain: what was received is answered, what comes later is told where to go."""

from __future__ import annotations

import asyncio
import queue
import time
from pathlib import Path

import grpc
from google.rpc import error_details_pb2, status_pb2

from sampler_client.v1 import sampler_pb2 as pb
from tests.service.bookkeeper import Bookkeeper
from tests.service.serving import (
    CALL_SECONDS,
    VERIFY,
    as_is,
    call_stream,
    parts,
    refused,
    run,
    server_process,
    small_step,
    stream_request,
    unary_request,
)


def test_unary_in_flight_is_answered_and_new_calls_are_sent_away(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path) as server:
            running = asyncio.ensure_future(server.verify(unary_request(small_step())))
            while not server.dispatcher.admitted:
                await asyncio.sleep(0.01)
            server.lifecycle.start_drain()
            with refused("UNAVAILABLE", "DRAINING"):
                await server.verify(unary_request(small_step()))
            server.engine.gate.release(1)
            assert pb.VerifyResponse.FromString(await running).result.token_ids
            await asyncio.wait_for(server.lifecycle.idle(), CALL_SECONDS)

    run(test)


def test_stream_answers_what_it_read_then_ends_with_a_delay(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path) as server:
            call = server.stream()
            for number in range(3):
                await call.write(stream_request(small_step(), number))
            while server.dispatcher.admitted < 3:
                await asyncio.sleep(0.01)
            server.lifecycle.start_drain()
            await call.write(stream_request(small_step(), 3))
            await asyncio.sleep(0.5)
            assert not call.done(), "the stream ended although steps were running"
            server.engine.gate.release(3)
            answers = [pb.VerifyStreamResponse.FromString(await _bytes(call)) for _ in range(4)]
            assert [answer.error.reason for answer in answers] == ["", "", "", "DRAINING"]
            assert answers[3].error.retry_delay_us > 0
            with refused("UNAVAILABLE", "DRAINING"):
                await call.read()
            await asyncio.wait_for(server.lifecycle.idle(), CALL_SECONDS)

    run(test)


async def _bytes(call: grpc.aio.StreamStreamCall[bytes, bytes]) -> bytes:
    data = await call.read()
    assert isinstance(data, bytes)
    return data


def test_idle_stream_ends_and_a_chatty_one_too(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path) as server:
            idle = server.stream()
            server.engine.gate.release(100_000)
            await idle.write(stream_request(small_step(), 1))
            await _bytes(idle)
            chatty = asyncio.ensure_future(asyncio.to_thread(_chat, server.address))
            await asyncio.sleep(0.2)
            server.lifecycle.start_drain()
            refusals, error = await chatty
            assert refusals > 0
            assert "DRAINING: " in error
            with refused("UNAVAILABLE", "DRAINING"):
                await idle.read()

    run(test)


def _chat(address: str) -> tuple[int, str]:
    """Send a step for every answer, whatever it says: the refusals heard, and how the stream ended."""
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    waiting.put(stream_request(small_step(), 0))
    refusals = 0
    with grpc.insecure_channel(address) as channel:
        try:
            for answer in call_stream(channel, iter(waiting.get, b"")):
                refusals += answer.error.reason == "DRAINING"
                waiting.put(stream_request(small_step(), 0))
        except grpc.RpcError as error:
            return refusals, str(error)
        finally:
            waiting.put(b"")
    return refusals, ""


def test_who_comes_during_a_drain_is_told_when_to_retry(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path) as server:
            server.lifecycle.start_drain()
            call = server.verify(unary_request(small_step()))
            details = dict(await call.trailing_metadata())["grpc-status-details-bin"]
            assert isinstance(details, bytes)
            retry = error_details_pb2.RetryInfo()
            assert any(detail.Unpack(retry) for detail in status_pb2.Status.FromString(details).details)
            assert retry.retry_delay.ToMilliseconds() > 0

    run(test)


def test_sigterm_under_load_leaves_no_step_without_an_answer(tmp_path: Path) -> None:
    with server_process("--listen", f"unix:{tmp_path}/s") as server:
        streams = [Bookkeeper(server.address) for _ in range(3)]
        time.sleep(0.5)
        assert server.end() == 0
        for stream in streams:
            stream.check()


HANGING = """
import sys, threading
from sampler_service import cli
from sampler_service.engine import Engine
class Hanging(Engine):
    def run(self, checked):
        if checked.step.target_logits.shape[1] == 2:
            threading.Event().wait()
        return super().run(checked)
made = Engine.of("cpu")
Engine.of = classmethod(lambda cls, name: Hanging(made.backend, made.device))
cli.main(["serve", "--listen", sys.argv[1], "--drain-seconds", "0.5"])
"""


def test_a_step_that_hangs_does_not_keep_the_server(tmp_path: Path) -> None:
    served = server_process(f"unix:{tmp_path}/s", program=["-c", HANGING])
    with served as server, grpc.insecure_channel(server.address) as channel:
        call = channel.unary_unary(VERIFY, as_is, as_is).future(unary_request(small_step()), timeout=CALL_SECONDS)
        time.sleep(0.5)
        assert server.end() == 0
        assert call.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
