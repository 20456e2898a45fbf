"""Admission: bounded by steps and by bytes, in order, and nothing of it lost by whoever gives up."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from sampler_client.v1 import sampler_pb2 as pb
from sampler_service.admission import Admission
from sampler_service.errors import Refusal
from sampler_service.limits import Limits
from sampler_service.steps import CheckedStep
from tests.service.serving import parts, refused, run, small_step, stream_request, unary_request

SETTLE_SECONDS = 0.2


def admission(steps: int = 10, size: int = 100) -> Admission:
    return Admission(Limits(max_queued_steps=steps, max_queued_bytes=size))


def held(one: Admission) -> tuple[int, int]:
    return one.steps, one.bytes


def test_bytes_are_bounded_and_a_larger_step_is_admitted_alone() -> None:
    one = admission()
    assert one.try_enter(60)
    assert one.try_enter(40)
    assert not one.try_enter(1)
    one.leave(60)
    one.leave(40)
    assert one.try_enter(1000)
    assert not one.try_enter(1)
    assert one.no_room(1).reason == "QUEUE_BYTES_FULL"


def test_steps_are_bounded() -> None:
    one = admission(steps=1)
    assert one.try_enter(1)
    assert not one.try_enter(1)
    assert one.no_room(1).reason == "QUEUE_FULL"


def test_who_waits_is_admitted_in_order_and_not_overtaken() -> None:
    async def test() -> None:
        one = admission()
        assert one.try_enter(60)
        assert one.try_enter(30)
        large = asyncio.create_task(one.enter(90))
        small = asyncio.create_task(one.enter(5))
        await asyncio.sleep(0)
        # There is room for 10 bytes, and they are kept for the large one.
        assert not one.try_enter(1)
        one.leave(60)
        await asyncio.sleep(0)
        assert not large.done()
        assert not small.done()
        one.leave(30)
        await asyncio.gather(large, small)
        assert held(one) == (2, 95)

    run(test)


def test_what_waits_is_bounded_too() -> None:
    async def test() -> None:
        one = admission()
        assert one.try_enter(100)
        waiting = asyncio.create_task(one.enter(80))
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as caught:
            await one.enter(30)
        assert caught.value.reason == "QUEUE_BYTES_FULL"
        one.leave(100)
        await waiting
        assert held(one) == (1, 80)

    run(test)


@pytest.mark.parametrize("called_up", [False, True])
def test_a_cancelled_wait_leaves_no_trace(called_up: bool) -> None:
    async def test() -> None:
        one = admission()
        assert one.try_enter(100)
        first = asyncio.create_task(one.enter(80))
        second = asyncio.create_task(one.enter(20))
        await asyncio.sleep(0)
        if called_up:
            one.leave(100)
        first.cancel()
        if not called_up:
            # While the cancelled one still stands in line.
            one.leave(100)
        await second
        with pytest.raises(asyncio.CancelledError):
            await first
        assert held(one) == (1, 20)
        one.leave(20)
        assert one.try_enter(100)

    run(test)


def test_a_wait_ends_with_the_time_of_its_step() -> None:
    async def test() -> None:
        one = admission()
        assert one.try_enter(100)
        with pytest.raises(Refusal) as caught:
            await one.enter(80, timeout=0.01)
        assert caught.value.reason == "STEP_DEADLINE_EXCEEDED"
        one.leave(100)
        assert held(one) == (0, 0)

    run(test)


def test_unary_calls_are_refused_and_streams_wait(tmp_path: Path) -> None:
    request = unary_request(small_step())
    most = 2 * len(stream_request(small_step(), 1))

    async def test() -> None:
        async with parts(tmp_path, max_queued_bytes=most) as server:
            stream = server.stream()
            for number in range(1, 4):
                await stream.write(stream_request(small_step(), number))
            await asyncio.sleep(SETTLE_SECONDS)
            assert server.dispatcher.admitted == 2
            call = server.verify(request)
            with refused("RESOURCE_EXHAUSTED", "QUEUE_BYTES_FULL"):
                await call
            details = dict(await call.trailing_metadata())["grpc-status-details-bin"]
            assert isinstance(details, bytes)
            retry = error_details_pb2.RetryInfo()
            assert any(detail.Unpack(retry) for detail in status_pb2.Status.FromString(details).details)
            assert retry.retry_delay.ToMilliseconds() > 0
            server.engine.gate.release(4)
            for number in range(1, 4):
                data = await stream.read()
                assert isinstance(data, bytes)
                answer = pb.VerifyStreamResponse.FromString(data)
                assert (answer.step_id, answer.WhichOneof("outcome")) == (number, "result")
            assert held(server.dispatcher.admission) == (0, 0)

    run(test)


def test_steps_given_up_hold_no_memory_while_the_device_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their room is given back at once, so whatever they still held would be counted by nobody."""
    alive: list[weakref.ref[CheckedStep]] = []
    init = CheckedStep.__init__

    def watching(self: CheckedStep, *args: object, **kwargs: object) -> None:
        init(self, *args, **kwargs)  # type: ignore[arg-type]
        alive.append(weakref.ref(self))

    monkeypatch.setattr(CheckedStep, "__init__", watching)

    async def test() -> None:
        async with parts(tmp_path) as server:
            running = asyncio.ensure_future(server.verify(unary_request(small_step())))
            while not server.dispatcher.admitted:
                await asyncio.sleep(0.01)
            for _ in range(5):
                call = server.verify(unary_request(small_step()), timeout=0.05)
                assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await asyncio.sleep(SETTLE_SECONDS)
            gc.collect()
            # The one that runs; nobody can take that from the device.
            assert sum(one() is not None for one in alive) == 1
            assert len(alive) == 6
            server.engine.gate.release(1)
            await running

    run(test)
