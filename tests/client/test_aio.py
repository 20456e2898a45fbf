"""The asyncio client and its sessions against a fake service, over real gRPC."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import grpc
import pytest

from sampler_client import (
    NO_RETRIES,
    AsyncSamplerClient,
    AsyncSession,
    Cancelled,
    DeadlineExceeded,
    InvalidStep,
    ResourceExhausted,
    RetryPolicy,
    SamplerClient,
    SamplingParams,
    ServerFault,
    Session,
    Step,
    StepResult,
    Unavailable,
)
from sampler_client.v1 import sampler_pb2 as pb
from tests.client.fakes import FakeService, Outcome, accept_all, refusal
from tests.client.steps import step

AT_ONCE = RetryPolicy(attempts=4, first_delay=0.001)


def with_client(
    address: str, use: Callable[[AsyncSamplerClient], Awaitable[None]], retry: RetryPolicy = AT_ONCE
) -> None:
    async def run() -> None:
        async with AsyncSamplerClient(address, retry=retry) as client:
            await use(client)

    asyncio.run(asyncio.wait_for(run(), 30))


def with_session(address: str, use: Callable[[AsyncSession], Coroutine[Any, Any, None]]) -> None:
    async def run(client: AsyncSamplerClient) -> None:
        async with client.session() as session:
            await use(session)

    with_client(address, run)


def accepted(result: StepResult) -> int:
    return result.requests[0].num_accepted


def hold(service: FakeService) -> threading.Event:
    """Holds the service back until the event is set."""
    opened = threading.Event()

    def answer(request: pb.Step) -> Outcome:
        assert opened.wait(10)
        return accept_all(request)

    service.answer = answer
    return opened


@pytest.mark.parametrize(("sync", "other"), [(SamplerClient, AsyncSamplerClient), (Session, AsyncSession)])
def test_same_names_and_arguments(sync: type, other: type) -> None:
    def public(kind: type) -> dict[str, list[str]]:
        members = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(method).parameters) for name, method in members if name[0] != "_"}

    assert public(sync) == public(other)
    assert list(inspect.signature(sync).parameters) == list(inspect.signature(other).parameters)


def test_verify_and_server_info(address: str, service: FakeService) -> None:
    async def use(client: AsyncSamplerClient) -> None:
        results = await asyncio.gather(*(client.verify(step([k])) for k in range(8)))
        assert [accepted(result) for result in results] == list(range(8))
        assert (await client.server_info()).limits.max_batch_size == 512

    with_client(address, use)
    assert len(service.steps) == 8


def test_refusals(address: str, service: FakeService) -> None:
    service.answer = lambda _: refusal(grpc.StatusCode.INVALID_ARGUMENT, "SHAPE_MISMATCH", field="target_logits")

    async def use(client: AsyncSamplerClient) -> None:
        with pytest.raises(InvalidStep) as refused:
            await client.verify(step())
        assert (refused.value.reason, refused.value.fields[0].field) == ("SHAPE_MISMATCH", "target_logits")
        with pytest.raises(ResourceExhausted):
            await client.verify(step([100], vocab_size=10_000))

    with_client(address, use)


def test_retries(address: str, service: FakeService) -> None:
    left = [refusal(grpc.StatusCode.UNAVAILABLE, "DRAINING")] * 3
    service.answer = lambda request: left.pop() if left else accept_all(request)

    async def use(client: AsyncSamplerClient) -> None:
        assert accepted(await client.verify(step([2]))) == 2
        left.append(refusal(grpc.StatusCode.UNAVAILABLE, "DRAINING"))
        with pytest.raises(Unavailable):
            await client.verify(step(seeded=False))

    with_client(address, use)
    assert len(service.steps) == 5


def test_deadline_and_nobody_there(address: str, service: FakeService) -> None:
    opened = hold(service)

    async def use(client: AsyncSamplerClient) -> None:
        with pytest.raises(DeadlineExceeded):
            await client.verify(step(), timeout=0.05)
        opened.set()

    async def use_none(client: AsyncSamplerClient) -> None:
        with pytest.raises(Unavailable):
            await client.verify(step())

    with_client(address, use)
    with_client(f"{address}-nobody", use_none, NO_RETRIES)


def test_closed(address: str) -> None:
    async def run() -> None:
        client = AsyncSamplerClient(address)
        session = client.session()
        await client.close()
        with pytest.raises(Cancelled, match="client is closed"):
            await client.verify(step())
        with pytest.raises(Cancelled, match="client is closed"):
            await session.verify(step())
        await session.close()
        with pytest.raises(Cancelled, match="session is closed"):
            await session.verify(step())

    asyncio.run(run())


def test_session_is_pipelined_and_in_order(address: str, service: FakeService) -> None:
    opened = hold(service)

    async def use(session: AsyncSession) -> None:
        finished: list[int] = []

        def note(k: int, _: object) -> None:
            finished.append(k)

        futures = [await session.submit(step([k])) for k in range(5)]
        for k, future in enumerate(futures):
            future.add_done_callback(partial(note, k))
        opened.set()
        assert [accepted(result) for result in await asyncio.gather(*futures)] == finished == [0, 1, 2, 3, 4]

    with_session(address, use)
    assert service.streams == 1


def test_session_failed_step_leaves_the_others_alone(address: str, service: FakeService) -> None:
    wrong = refusal(grpc.StatusCode.INVALID_ARGUMENT, "SHAPE_MISMATCH")
    service.answer = lambda request: wrong if request.draft_lengths[0] == 1 else accept_all(request)

    async def use(session: AsyncSession) -> None:
        outcomes = await asyncio.gather(*(session.verify(step([k])) for k in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StepResult, InvalidStep, StepResult]

    with_session(address, use)
    assert service.streams == 1


def test_session_params(address: str, service: FakeService) -> None:
    async def use(session: AsyncSession) -> None:
        params = SamplingParams(top_k=1)
        for _ in range(3):
            await session.verify(step(params=[params]))

    with_session(address, use)
    assert [len(request.params) for request in service.steps] == [1, 0, 0]


def test_session_timeout_and_room(address: str, service: FakeService) -> None:
    opened = hold(service)

    async def use(client: AsyncSamplerClient) -> None:
        async with client.session(max_in_flight=1) as session:
            with pytest.raises(DeadlineExceeded, match="no answer"):
                await session.verify(step(), timeout=0.1)
            with pytest.raises(DeadlineExceeded, match="no room"):
                await session.verify(step(), timeout=0.05)
            opened.set()
            assert accepted(await session.verify(step([1]))) == 1

    with_client(address, use)
    assert 0 < service.timeouts_us[0] <= 100_000


def test_session_survives_a_cancelled_step(address: str, service: FakeService) -> None:
    opened = hold(service)

    async def use(session: AsyncSession) -> None:
        task = asyncio.create_task(session.verify(step([1])))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        opened.set()
        assert accepted(await session.verify(step([2]))) == 2

    with_session(address, use)
    assert service.streams == 1


def test_session_broken_stream(address: str, service: FakeService) -> None:
    service.breaks_after = 1

    async def use(session: AsyncSession) -> None:
        await session.verify(step())
        with pytest.raises(Unavailable):
            await session.verify(step(seeded=False))
        assert accepted(await session.verify(step([2]))) == 2

    with_session(address, use)
    assert service.streams == 2


def test_session_seeded_step_survives_a_broken_stream(address: str, service: FakeService) -> None:
    service.breaks_after = 0

    async def use(session: AsyncSession) -> None:
        assert accepted(await session.verify(step([2]))) == 2

    with_session(address, use)


def test_session_oversize_step_and_strange_answer(address: str, service: FakeService) -> None:
    async def use(session: AsyncSession) -> None:
        with pytest.raises(ResourceExhausted):
            await session.verify(step([100], vocab_size=10_000))
        with pytest.raises(InvalidStep):
            await session.verify(Step(target_logits=[1.0], draft_lengths=[0]))
        await session.verify(step())
        assert service.streams == 1
        service.wrong_by = 1
        with pytest.raises(ServerFault, match="not due"):
            await session.verify(step())

    with_session(address, use)


def test_session_close(address: str, service: FakeService) -> None:
    opened = hold(service)

    async def use(client: AsyncSamplerClient) -> None:
        session = client.session()
        waiting = [await session.submit(step([k])) for k in range(3)]
        asyncio.get_running_loop().call_later(0.1, opened.set)
        await session.close()
        assert [accepted(future.result()) for future in waiting] == [0, 1, 2]
        opened.clear()
        other = client.session()
        late = await other.submit(step())
        await other.close(timeout=0.05)
        with pytest.raises(Cancelled):
            late.result()
        opened.set()

    with_client(address, use)
