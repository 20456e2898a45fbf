"""A small message never makes the server take a large piece of memory, nor hold on to a large one that was answered."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import grpc
import numpy as np
import pytest

from sampler_client.v1 import sampler_pb2 as pb
from sampler_service.codec.reading import Reading
from sampler_service.steps import CheckedStep
from tests.service.serving import (
    VERIFY,
    as_is,
    call,
    call_stream,
    parts,
    refused,
    run,
    server_process,
    small_step,
    stream_request,
    unary_request,
)
from tests.service.steps import tensor

MIB = 1 << 20
TOO_MUCH = ("INVALID_ARGUMENT", "LIMIT_EXCEEDED")
MOST_GROWTH_MIB = 200
"""Each step below is a few MiB at most, and asks for more than 1 GiB where something grows with what it claims."""


def peak_mib(pid: int) -> int:
    """The most memory that a process has ever held."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def halves(rows: int, columns: int) -> pb.Tensor:
    return tensor(np.zeros((rows, columns), np.float16), pb.DTYPE_FLOAT16)


def narrow_step(batch: int, k: int, **fields: object) -> pb.Step:
    """Requests of k draft tokens over a vocabulary of one."""
    ids = tensor(np.zeros(batch * k, np.int32), pb.DTYPE_INT32)
    target = halves(batch * (k + 1), 1)
    return pb.Step(target_logits=target, draft_lengths=[k] * batch, draft_token_ids=ids, **fields)  # type: ignore[arg-type]


def unused_maps() -> pb.Step:
    """Maps of blocks without rows, over a vocabulary of a million: an inverse of each would take 4 MiB."""
    step = pb.Step(target_logits=halves(1, MIB), draft_lengths=[0], draft_block_index=[-1])
    for i in range(300):
        ids = tensor(np.array([i], np.int64), pb.DTYPE_INT64)
        step.draft_blocks.add(logits=pb.Tensor(dtype=pb.DTYPE_FLOAT16, shape=[0, 1]), draft_id_map=ids)
    return step


def history_in_a_region() -> pb.Step:
    """A history of 256 rows of a million ids that are not in the message at all."""
    step = narrow_step(256, 0)
    step.prompt_token_ids.lengths.extend([MIB] * 256)
    step.prompt_token_ids.token_ids.CopyFrom(
        pb.Tensor(dtype=pb.DTYPE_INT64, shape=[256, MIB], region=pb.RegionSlice(region_id=bytes(16)))
    )
    return step


def one_wide_draft() -> pb.Step:
    """One draft row of a million columns among 130,000 of one: tables as wide as the widest would take 4 GiB."""
    step = narrow_step(1024, 128)
    step.draft_lengths[0] = 1
    step.target_logits.CopyFrom(halves(1023 * 129 + 2, 1))
    step.draft_token_ids.CopyFrom(tensor(np.zeros(1023 * 128 + 1, np.int32), pb.DTYPE_INT32))
    step.draft_blocks.add(logits=halves(1, MIB))
    step.draft_blocks.add(logits=halves(1023 * 128, 1))
    step.draft_block_index.extend([0] + [1] * 1023)
    return step


def many_chosen_ids(batch: int = 1024) -> pb.Step:
    """A thousand chosen ids beside each of 132,000 tokens: an answer of a GiB."""
    return narrow_step(batch, 128, params=[pb.SamplingParams(logprob_token_ids=[0] * 1024)])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (unused_maps, None),
        (history_in_a_region, ("UNIMPLEMENTED", "NOT_IMPLEMENTED")),
        (one_wide_draft, TOO_MUCH),
        (many_chosen_ids, TOO_MUCH),
    ],
)
def test_memory_follows_the_message(
    tmp_path: Path, make: Callable[[], pb.Step], reason: tuple[str, str] | None
) -> None:
    arguments = ("--listen", f"unix:{tmp_path}/s.sock", "--backend", "cpu")
    with server_process(*arguments) as server, grpc.insecure_channel(server.address) as channel:
        call(channel, VERIFY, unary_request(small_step()))
        before = peak_mib(server.process.pid)
        with refused(*reason) if reason else nullcontext():
            call(channel, VERIFY, unary_request(make()))
        assert peak_mib(server.process.pid) - before < MOST_GROWTH_MIB
        call(channel, VERIFY, unary_request(small_step()))


def test_a_stream_outlives_an_answer_that_would_be_too_large(tmp_path: Path) -> None:
    arguments = ("--listen", f"unix:{tmp_path}/s.sock", "--backend", "cpu", "--max-send-mib", "1")
    steps = [small_step(), many_chosen_ids(batch=8), small_step()]
    with server_process(*arguments) as server, grpc.insecure_channel(server.address) as channel:
        answers = list(call_stream(channel, (stream_request(step, i) for i, step in enumerate(steps))))
    assert [answer.step_id for answer in answers] == [0, 1, 2]
    assert [answer.error.reason for answer in answers] == ["", "LIMIT_EXCEEDED", ""]


@pytest.mark.parametrize(("batch", "most"), [(4096, 16), (200, 512)])
def test_the_largest_answer_within_the_limit_is_sent(tmp_path: Path, batch: int, most: int) -> None:
    """The bound on what is asked for is one on what is sent."""
    arguments = ("--listen", f"unix:{tmp_path}/s.sock", "--backend", "cpu", "--max-send-mib", "1")
    step = narrow_step(batch, 0)
    step.params.add()
    with server_process(*arguments) as server, grpc.insecure_channel(server.address) as channel:
        step.params[0].logprob_token_ids[:] = [0] * most
        assert MIB / 2 < len(call(channel, VERIFY, unary_request(step))) <= MIB
        step.params[0].logprob_token_ids[:] = [0] * 2 * most
        with refused(*TOO_MUCH):
            call(channel, VERIFY, unary_request(step))


@pytest.mark.parametrize("change", [{}, {"temperature": -1.0}, {"top_k": 1}, {"method": 99}])
@pytest.mark.parametrize("streamed", [False, True])
def test_nothing_of_an_answered_step_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, float], streamed: bool
) -> None:
    """A step may hold hundreds of MiB, too much to be left lying until the collector looks for cycles."""
    step = small_step()
    step.params.add(**change)

    async def test() -> None:
        async with parts(tmp_path) as server:
            server.engine.gate.release(100)
            alive = watched(monkeypatch)
            gc.collect()
            gc.disable()
            try:
                for _ in range(3):
                    if streamed:
                        stream = server.stream()
                        await stream.write(stream_request(step, 1))
                        await stream.read()
                        await stream.done_writing()
                        await stream.code()
                    else:
                        await server.channel.unary_unary(VERIFY, as_is, as_is)(unary_request(step), timeout=5).code()
                assert alive, "the test saw no step"
                # The device thread lets go of a step a moment after it has handed over the result.
                for _ in range(100):
                    if not any(one() for one in alive):
                        break
                    await asyncio.sleep(0.01)
                assert [one() for one in alive if one() is not None] == []
            finally:
                gc.enable()

    run(test)


def watched(patch: pytest.MonkeyPatch) -> list[weakref.ref[object]]:
    """A weak reference to everything through which the server holds a step that it reads or runs."""
    alive: list[weakref.ref[object]] = []
    for kind in (CheckedStep, Reading):
        patch.setattr(kind, "__init__", _watching(kind.__init__, alive))
    return alive


def _watching(init: Callable[..., None], alive: list[weakref.ref[object]]) -> Callable[..., None]:
    def watching(self: object, *args: object, **kwargs: object) -> None:
        init(self, *args, **kwargs)
        alive.append(weakref.ref(self))

    return watching
