"""Sessions for threads against a fake service, over real gRPC."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial

import grpc
import pytest

from sampler_client import (
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
    Unavailable,
)
from sampler_client.v1 import sampler_pb2 as pb
from tests.client.fakes import FakeService, Outcome, accept_all, refusal
from tests.client.steps import step

AT_ONCE = RetryPolicy(attempts=4, first_delay=0.001)


@pytest.fixture
def session(address: str) -> Iterator[Session]:
    with SamplerClient(address, retry=AT_ONCE) as client, client.session() as session:
        yield session


class Gate:
    """Holds the service back until it is opened."""

    def __init__(self, service: FakeService) -> None:
        self._open = threading.Event()
        service.answer = self._answer
        self.open = self._open.set

    def _answer(self, request: pb.Step) -> Outcome:
        assert self._open.wait(10)
        return accept_all(request)


def test_many_steps_over_one_stream(session: Session, service: FakeService) -> None:
    assert [session.verify(step([k])).requests[0].num_accepted for k in (3, 0, 2)] == [3, 0, 2]
    assert service.streams == 1


def test_steps_are_sent_ahead_and_answered_in_order(session: Session, service: FakeService) -> None:
    gate = Gate(service)
    finished: list[int] = []

    def note(k: int, _: object) -> None:
        finished.append(k)

    futures = [session.submit(step([k])) for k in range(5)]
    for k, future in enumerate(futures):
        future.add_done_callback(partial(note, k))
    assert not any(future.done() for future in futures)
    gate.open()
    assert [future.result(5).requests[0].num_accepted for future in futures] == [0, 1, 2, 3, 4]
    assert finished == [0, 1, 2, 3, 4]


def test_failed_step_leaves_the_others_alone(session: Session, service: FakeService) -> None:
    wrong = refusal(grpc.StatusCode.INVALID_ARGUMENT, "SHAPE_MISMATCH", field="target_logits")
    service.answer = lambda request: wrong if request.draft_lengths[0] == 1 else accept_all(request)
    futures = [session.submit(step([k])) for k in (0, 1, 2)]
    assert [future.result(5).requests[0].num_accepted for future in futures[::2]] == [0, 2]
    with pytest.raises(InvalidStep) as refused:
        futures[1].result(5)
    assert (refused.value.reason, refused.value.fields[0].field) == ("SHAPE_MISMATCH", "target_logits")
    assert service.streams == 1


def test_params_are_sent_only_when_they_are_new(session: Session, service: FakeService) -> None:
    first, second = SamplingParams(top_k=1), SamplingParams(top_k=2)
    for params in ([first], [first], [first, second], [second, first]):
        session.verify(step([0] * len(params), params=params))
    sent = [[entry.top_k for entry in request.params] for request in service.steps]
    assert sent == [[1], [], [2], []]
    assert [list(request.kept_params) for request in service.steps] == [[], [1], [1], [2, 1]]
    assert [list(request.params_index) for request in service.steps] == [[0], [0], [1, 0], [0, 1]]


def test_params_of_a_refused_step_are_sent_again(session: Session, service: FakeService) -> None:
    params = SamplingParams(top_k=1)
    service.answer = lambda _: refusal(grpc.StatusCode.INVALID_ARGUMENT, "SHAPE_MISMATCH")
    with pytest.raises(InvalidStep):
        session.verify(step(params=[params]))
    service.answer = accept_all
    session.verify(step(params=[params]))
    assert [len(request.params) for request in service.steps] == [1, 1]


def test_server_that_keeps_nothing_gets_all_params(address: str, service: FakeService) -> None:
    del service.info.features[:]
    params = SamplingParams(top_k=1)
    with SamplerClient(address) as client, client.session() as session:
        session.verify(step(params=[params]))
        session.verify(step(params=[params]))
    assert [(len(request.params), len(request.keep_params_as)) for request in service.steps] == [(1, 0), (1, 0)]


def test_timeout_goes_to_the_server_and_holds_here(session: Session, service: FakeService) -> None:
    gate = Gate(service)
    with pytest.raises(DeadlineExceeded):
        session.verify(step(), timeout=0.2)
    assert 0 < service.timeouts_us[0] <= 200_000
    gate.open()
    assert session.verify(step([1])).requests[0].num_accepted == 1


def test_room_is_bounded(address: str, service: FakeService) -> None:
    gate = Gate(service)
    with SamplerClient(address) as client, client.session(max_in_flight=2) as session:
        futures = [session.submit(step()), session.submit(step())]
        with pytest.raises(DeadlineExceeded, match="no room"):
            session.submit(step(), timeout=0.05)
        gate.open()
        assert session.verify(step([1])).requests[0].num_accepted == 1
        assert all(future.result(5).requests for future in futures)


def test_broken_stream_fails_what_is_in_flight_and_the_next_step_opens_another(
    session: Session, service: FakeService
) -> None:
    service.breaks_after = 1
    params = SamplingParams(top_k=1)
    session.verify(step(params=[params]))
    with pytest.raises(Unavailable):
        session.submit(step(params=[params])).result(5)
    session.verify(step(params=[params]))
    assert service.streams == 2
    assert [len(request.params) for request in service.steps] == [1, 0, 1]  # a new stream knows no params


def test_seeded_step_survives_a_broken_stream(session: Session, service: FakeService) -> None:
    service.breaks_after = 0
    assert session.verify(step([2])).requests[0].num_accepted == 2
    assert service.streams == 2


def test_step_without_seed_does_not(session: Session, service: FakeService) -> None:
    service.breaks_after = 0
    with pytest.raises(Unavailable):
        session.verify(step(seeded=False))
    assert len(service.steps) == 1


def test_oversize_step_does_not_end_the_stream(session: Session, service: FakeService) -> None:
    session.verify(step())
    with pytest.raises(ResourceExhausted, match="receives at most 1048576"):
        session.verify(step([100], vocab_size=10_000))
    session.verify(step())
    assert (service.streams, len(service.steps)) == (1, 2)


def test_step_that_cannot_be_encoded(session: Session, service: FakeService) -> None:
    with pytest.raises(InvalidStep):
        session.submit(Step(target_logits=[1.0], draft_lengths=[0]))
    session.verify(step())
    assert len(service.steps) == 1


def test_answer_that_was_not_due_ends_the_stream(session: Session, service: FakeService) -> None:
    service.wrong_by = 1
    with pytest.raises(ServerFault, match="the answer to step 2 was not due"):
        session.verify(step())
    service.wrong_by = 0
    session.verify(step())
    assert service.streams == 2


def test_close_waits_for_answers(address: str, service: FakeService) -> None:
    gate = Gate(service)
    with SamplerClient(address) as client:
        session = client.session()
        futures = [session.submit(step([k])) for k in range(3)]
        threading.Timer(0.1, gate.open).start()
        session.close()
        assert [future.result(0).requests[0].num_accepted for future in futures] == [0, 1, 2]
        with pytest.raises(Cancelled, match="session is closed"):
            session.submit(step())


def test_close_does_not_wait_for_ever(address: str, service: FakeService) -> None:
    gate = Gate(service)
    with SamplerClient(address) as client:
        session = client.session()
        future = session.submit(step())
        session.close(timeout=0.05)
        with pytest.raises(Cancelled):
            future.result(0)
        gate.open()


def test_cancelled_future_only_drops_its_answer(session: Session, service: FakeService) -> None:
    gate = Gate(service)
    dropped, wanted = session.submit(step([1])), session.submit(step([2]))
    assert dropped.cancel()
    gate.open()
    assert wanted.result(5).requests[0].num_accepted == 2


def test_session_that_was_never_used(address: str, service: FakeService) -> None:
    with SamplerClient(address) as client, client.session():
        pass
    assert service.streams == 0


def test_session_after_its_client(address: str) -> None:
    client = SamplerClient(address)
    session = client.session()
    client.close()
    with pytest.raises(Cancelled):
        session.verify(step())


def test_many_threads_share_a_session(session: Session, service: FakeService) -> None:
    wrong: list[int] = []

    def work(k: int) -> None:
        params = SamplingParams(top_k=k)
        results = [session.verify(step([k], params=[params])) for _ in range(20)]
        wrong.extend(k for result in results if result.requests[0].num_accepted != k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong
    assert len(service.steps) == 160


def test_no_thread_is_left(address: str) -> None:
    before = threading.active_count()
    with SamplerClient(address) as client, client.session() as session:
        session.verify(step())
    deadline = time.monotonic() + 5
    while threading.active_count() > before + 4 and time.monotonic() < deadline:  # the server's pool has 4 threads
        time.sleep(0.01)
    assert not [thread for thread in threading.enumerate() if thread.name == "sampler-session"]
