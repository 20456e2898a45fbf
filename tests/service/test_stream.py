"""VerifyStream: order, pipelining, bounded read-ahead, timeouts, kept state, and what ends it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from pathlib import Path

import grpc
import numpy as np
import pytest

from sampler_client.v1 import sampler_pb2 as pb
from tests.service.serving import Parts, call_stream, parts, refused, run, small_step, stream_request, unary_request
from tests.service.steps import D, V, good_step, tensor

SETTLE_SECONDS = 0.3
"""Long enough for messages on a local socket to arrive, so that what has not happened by then was held back."""


async def read(call: grpc.aio.StreamStreamCall[bytes, bytes]) -> pb.VerifyStreamResponse:
    data = await call.read()
    assert isinstance(data, bytes), f"the stream ended: {await call.code()} {await call.details()}"
    return pb.VerifyStreamResponse.FromString(data)


async def ended(call: grpc.aio.StreamStreamCall[bytes, bytes]) -> grpc.StatusCode:
    with contextlib.suppress(grpc.aio.AioRpcError):
        assert await call.read() is grpc.aio.EOF
    return await call.code()


async def answered(server: Parts, *steps: pb.Step) -> list[pb.VerifyStreamResponse]:
    """The answers to steps of one stream, numbered from 1, with the gate open."""
    server.engine.gate.release(len(steps))
    call = server.stream()
    for number, step in enumerate(steps, 1):
        await call.write(stream_request(step, number))
    await call.done_writing()
    answers = [await read(call) for _ in steps]
    assert await ended(call) is grpc.StatusCode.OK
    return answers


def test_answers_keep_the_order_of_requests_whatever_fails(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path) as server:
            call = server.stream()
            await call.write(stream_request(small_step(1.0), 11))
            await call.write(b"\xff\xff")
            await call.write(stream_request(pb.Step(), 13))
            await call.write(stream_request(small_step(4.0), 14))
            await asyncio.sleep(SETTLE_SECONDS)
            # The refusals are known by now; they still wait for their turn.
            server.engine.gate.release(2)
            answers = [await read(call) for _ in range(4)]
            assert [answer.step_id for answer in answers] == [11, 0, 13, 14]
            assert [answer.error.reason for answer in answers] == ["", "MALFORMED_MESSAGE", "FIELD_REQUIRED", ""]
            await call.done_writing()
            assert await ended(call) is grpc.StatusCode.OK

    run(test)


def test_half_close_answers_everything_received(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path) as server:
            answers = await answered(server, *(small_step(float(i)) for i in range(20)))
            assert [answer.step_id for answer in answers] == list(range(1, 21))
            assert all(answer.WhichOneof("outcome") == "result" for answer in answers)
            assert server.engine.ran == [float(i) for i in range(20)]

    run(test)


def test_read_ahead_is_bounded(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path, max_read_ahead=3) as server:
            call = server.stream()
            for number in range(10):
                await call.write(stream_request(small_step(float(number)), number))
            await asyncio.sleep(SETTLE_SECONDS)
            assert server.dispatcher.admitted == 3
            server.engine.gate.release(1)
            assert (await read(call)).step_id == 0
            await asyncio.sleep(SETTLE_SECONDS)
            assert server.dispatcher.admitted == 3
            server.engine.gate.release(9)
            assert [(await read(call)).step_id for _ in range(9)] == list(range(1, 10))

    run(test)


def test_streams_wait_where_unary_calls_are_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path, max_queued_steps=2) as server:
            call = server.stream()
            for number in range(4):
                await call.write(stream_request(small_step(), number))
            await asyncio.sleep(SETTLE_SECONDS)
            assert server.dispatcher.admitted == 2
            with refused("RESOURCE_EXHAUSTED", "QUEUE_FULL"):
                await server.verify(unary_request(small_step()))
            server.engine.gate.release(4)
            answers = [await read(call) for _ in range(4)]
            assert all(answer.WhichOneof("outcome") == "result" for answer in answers)

    run(test)


def test_timeout_of_a_step(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path) as server:
            call = server.stream()
            await call.write(stream_request(small_step(1.0), 1, timeout_us=20_000))
            await call.write(stream_request(small_step(2.0), 2, timeout_us=20_000))
            await call.write(stream_request(small_step(3.0), 3))
            first, second = await read(call), await read(call)
            assert {first.error.reason, second.error.reason} == {"STEP_DEADLINE_EXCEEDED"}
            assert first.error.code == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
            server.engine.gate.release(2)
            assert (await read(call)).WhichOneof("outcome") == "result"
            # The first had begun when its time ran out; the second was never started.
            assert server.engine.ran == [1.0, 3.0]

    run(test)


def test_a_client_that_goes_away_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path) as server:
            call = server.stream()
            for number in range(5):
                await call.write(stream_request(small_step(float(number)), number))
            await asyncio.sleep(SETTLE_SECONDS)
            call.cancel()
            await asyncio.sleep(SETTLE_SECONDS)
            assert server.dispatcher.admitted == 0
            server.engine.gate.release(6)
            response = await server.verify(unary_request(small_step(9.0)))
            assert len(pb.VerifyResponse.FromString(response).result.token_ids) == 1
            assert server.engine.ran == [0.0, 9.0]

    run(test)


def test_a_fault_of_the_server_is_answered_and_survived(tmp_path: Path) -> None:
    def broken(_step: object) -> None:
        raise ZeroDivisionError("the secret of a step")

    async def test() -> None:
        async with parts(tmp_path) as server:
            object.__setattr__(server.engine, "answer", broken)
            first, second = await answered(server, small_step(), small_step())
            assert {first.error.reason, second.error.reason} == {"INTERNAL_ERROR"}
            assert "secret" not in first.error.message

    run(test)


def test_params_are_kept_and_replaced_and_forgotten(tmp_path: Path) -> None:
    def sent(*params: pb.SamplingParams, keep: tuple[int, ...] = (), use: tuple[int, ...] = ()) -> pb.Step:
        step = small_step()
        step.params.extend(params)
        step.keep_params_as.extend(keep)
        step.kept_params.extend(use)
        return step

    top, none = pb.SamplingParams(top_logprobs=2), pb.SamplingParams(logprobs_modes=pb.LogprobsModes())
    keep_and_be_refused = sent(pb.SamplingParams(top_p=7.0), keep=(9,))
    forget = sent(use=(5,))
    forget.forget.params.append(5)

    async def test() -> None:
        async with parts(tmp_path) as server:
            answers = await answered(
                server,
                sent(top, keep=(5,)),
                sent(use=(5,)),
                sent(none, keep=(5,)),
                sent(use=(5,)),
                keep_and_be_refused,
                sent(use=(9,)),
                forget,
                sent(use=(5,)),
            )
            tops = [[len(mode.top_values) for mode in answer.result.logprobs] for answer in answers]
            assert tops[:4] == [[8], [8], [], []]
            reasons = [answer.error.reason for answer in answers[4:]]
            assert reasons == ["PARAMETER_OUT_OF_RANGE", "KEPT_STATE_NOT_FOUND", "", "KEPT_STATE_NOT_FOUND"]
            assert answers[5].error.code == grpc.StatusCode.NOT_FOUND.value[0]
            # Another stream has its own.
            (other,) = await answered(server, sent(use=(5,)))
            assert other.error.reason == "KEPT_STATE_NOT_FOUND"

    run(test)


def test_index_counts_sent_sets_then_kept_ones(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path) as server:
            first = good_step()
            first.keep_params_as.extend([3, 0])
            second = good_step()
            del second.params[:]
            second.params.append(pb.SamplingParams(temperature=1.0, top_logprobs=2))
            second.kept_params.append(3)
            second.ClearField("params_index")
            second.params_index.extend([1, 0])
            kept, mixed, out = await answered(server, first, second, _with_index(second, [2, 0]))
            assert kept.result.token_ids == mixed.result.token_ids
            assert kept.result.logprobs == mixed.result.logprobs
            assert out.error.reason == "INDEX_OUT_OF_RANGE"

    run(test)


def _with_index(step: pb.Step, index: list[int]) -> pb.Step:
    other = pb.Step()
    other.CopyFrom(step)
    other.ClearField("params_index")
    other.params_index.extend(index)
    return other


def test_maps_are_kept(tmp_path: Path) -> None:
    ids = np.arange(V - 1, V - 1 - D, -1).astype(np.int32)
    sending, using = good_step(), good_step()
    for step in (sending, using):
        step.draft_token_ids.CopyFrom(tensor(ids[[1, 2, 3]], pb.DTYPE_INT32))
    sending.draft_blocks[0].draft_id_map.CopyFrom(tensor(ids, pb.DTYPE_INT32))
    sending.draft_blocks[0].keep_draft_id_map_as = 4
    using.draft_blocks[0].kept_draft_id_map = 4

    async def test() -> None:
        async with parts(tmp_path) as server:
            sent, used = await answered(server, sending, using)
            assert sent.result.token_ids == used.result.token_ids
            assert sent.result.logprobs == used.result.logprobs

    run(test)


def test_kept_state_is_bounded(tmp_path: Path) -> None:
    def keeping(key: int) -> pb.Step:
        step = small_step()
        step.params.add()
        step.keep_params_as.append(key)
        return step

    async def test() -> None:
        async with parts(tmp_path, max_kept_params=2) as server:
            answers = await answered(server, keeping(1), keeping(2), keeping(3), keeping(2))
            assert [answer.error.reason for answer in answers] == ["", "", "KEPT_STATE_FULL", ""]

    run(test)


def test_unary_keeps_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path) as server:
            step = small_step()
            step.params.add()
            step.keep_params_as.append(1)
            with refused("INVALID_ARGUMENT", "KEPT_STATE_NEEDS_STREAM"):
                await server.verify(unary_request(step))

    run(test)


def test_streams_are_counted(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path, max_streams=1) as server:
            server.engine.gate.release(2)
            first = server.stream()
            await first.write(stream_request(small_step(), 1))
            await read(first)
            second = server.stream()
            assert await ended(second) is grpc.StatusCode.RESOURCE_EXHAUSTED
            await first.done_writing()
            assert await ended(first) is grpc.StatusCode.OK
            third = server.stream()
            await third.write(stream_request(small_step(), 1))
            await read(third)

    run(test)


def test_a_client_that_takes_no_answer_is_given_up(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path, unread_seconds=0.5) as server:
            server.engine.gate.release(100_000)
            error = await asyncio.to_thread(_deaf, server.address, 2.0)
            assert "ANSWERS_NOT_READ: " in error
            assert "StatusCode.UNAVAILABLE" in error
            assert server.dispatcher.admitted == 0

    run(test)


def test_a_client_that_takes_its_time_is_not(tmp_path: Path) -> None:
    async def test() -> None:
        async with parts(tmp_path, unread_seconds=0.5) as server:
            server.engine.gate.release(100)
            call = server.stream()
            for number in range(3):
                await call.write(stream_request(small_step(), number))
                await asyncio.sleep(0.8)
            assert [(await read(call)).step_id for _ in range(3)] == [0, 1, 2]

    run(test)


def _deaf(address: str, seconds: float) -> str:
    """Send without end and read nothing for a while; how the stream has ended."""
    step = small_step()
    # More than any window holds.
    step.params.add(logprob_token_ids=[0] * 1000)
    with grpc.insecure_channel(address) as channel:
        answers = call_stream(channel, itertools.repeat(stream_request(step, 1)))
        time.sleep(seconds)
        with pytest.raises(grpc.RpcError) as caught:
            for _ in answers:
                pass
    return str(caught.value)
