"""Taking payloads out of a message changes nothing that can be seen from outside."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from sampler_client.v1 import sampler_pb2 as pb
from sampler_service.codec import lift
from sampler_service.codec.parse import parse
from sampler_service.codec.step import StepDecoder
from sampler_service.codec.tensors import LOGITS, TensorReader
from sampler_service.errors import Refusal
from sampler_service.limits import Limits
from tests.service.serving import unary_request
from tests.service.steps import MISTAKES, Mistake, good_step, tensor
from tests.service.test_fuzz import bent


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of every size are walked."""
    monkeypatch.setattr(lift, "SMALL", -1)


def full_step() -> pb.Step:
    """A step in which every input tensor is there."""
    step = good_step()
    ids = tensor(np.arange(3, dtype=np.int32), pb.DTYPE_INT32)
    step.prompt_token_ids.CopyFrom(pb.History(token_ids=ids, lengths=[1, 2]))
    step.output_token_ids.CopyFrom(pb.History(sparse_token_ids=ids, sparse_counts=ids, sparse_lengths=[1, 2]))
    step.token_bitmask.words.CopyFrom(tensor(np.ones((2, 1), np.int32), pb.DTYPE_INT32))
    step.target_logsumexp.CopyFrom(tensor(np.ones(5), pb.DTYPE_FLOAT64))
    step.draft_logsumexp.CopyFrom(tensor(np.ones(3), pb.DTYPE_FLOAT64))
    step.draft_blocks[0].draft_id_map.CopyFrom(tensor(np.arange(12, dtype=np.int64), pb.DTYPE_INT64))
    return step


def payloads_put_back(message: pb.VerifyRequest, payloads: lift.Payloads) -> pb.VerifyRequest:
    """The message with the payload of every tensor where it was."""
    step = message.step
    tensors = [step.target_logits, step.draft_token_ids, step.target_logsumexp, step.draft_logsumexp]
    tensors += [step.token_bitmask.words]
    for block in step.draft_blocks:
        tensors += [block.logits, block.draft_id_map]
    for history in (step.prompt_token_ids, step.output_token_ids):
        tensors += [history.token_ids, history.sparse_token_ids, history.sparse_counts]
    for one in tensors:
        if one.WhichOneof("source") == "inline_bytes":
            one.inline_bytes = bytes(payloads.of(one.inline_bytes))
    return message


@pytest.mark.usefixtures("always")
def test_every_payload_is_found_again() -> None:
    data = unary_request(full_step())
    lifted = lift.lift(pb.VerifyRequest, data)
    assert lifted is not None
    rest, payloads = lifted
    assert len(rest) < len(data) / 2
    again = payloads_put_back(pb.VerifyRequest.FromString(rest), payloads)
    assert again == pb.VerifyRequest.FromString(data)


@pytest.mark.usefixtures("always")
def test_merged_and_repeated_fields_mean_what_protobuf_says() -> None:
    first, second = pb.VerifyRequest(step=good_step()), pb.VerifyRequest(step=good_step())
    second.step.target_logits.inline_bytes = bytes(range(100))
    third = pb.VerifyRequest()
    third.step.target_logits.region.region_id = b"r" * 16
    for parts in ([first, second], [second, first], [first, third], [third, second]):
        data = b"".join(part.SerializeToString() for part in parts)
        expected = pb.VerifyRequest.FromString(data)
        lifted = lift.lift(pb.VerifyRequest, data)
        assert lifted is not None
        message = pb.VerifyRequest.FromString(lifted[0])
        source = message.step.target_logits.WhichOneof("source")
        assert source == expected.step.target_logits.WhichOneof("source")
        if source == "inline_bytes":
            assert lifted[1].of(message.step.target_logits.inline_bytes) == expected.step.target_logits.inline_bytes


def outcome(data: bytes) -> str:
    """What becomes of a message of a stream: its refusal, or everything in its step."""
    try:
        message, tensors = parse(pb.VerifyStreamRequest, data)
        if not message.HasField("step"):
            return "no step"
        step = StepDecoder(Limits()).decode(message.step, tensors, None).step
    except Refusal as refusal:
        return str(refusal)
    blocks = [(block.logits.numpy().tobytes(), block.logits.shape) for block in step.draft_blocks]
    rows = (step.target_logits.numpy().tobytes(), step.target_logits.shape)
    return repr((rows, blocks, step.draft_token_ids.tolist(), step.seeds, step.positions, step.params_index))


def test_bent_messages_have_the_same_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [bent(50_000 + seed) for seed in range(1500)]
    plain = [outcome(data) for data in messages]
    monkeypatch.setattr(lift, "SMALL", -1)
    walked = [outcome(data) for data in messages]
    assert walked == plain
    # Enough of either kind for the comparison to mean something.
    good = sum(text.startswith("((") for text in plain)
    assert 100 < good < 1400


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistakes_are_seen_all_the_same(mistake: Mistake) -> None:
    step = good_step()
    mistake.change(step)
    message, tensors = parse(pb.VerifyRequest, unary_request(step))
    with pytest.raises(Refusal) as caught:
        StepDecoder(Limits()).decode(message.step, tensors, None)
    assert (caught.value.reason, caught.value.field) == (mistake.reason, mistake.field)


@pytest.mark.parametrize("offset", range(8))
@pytest.mark.parametrize(
    ("dtype", "torch_dtype"), [(pb.DTYPE_FLOAT32, torch.float32), (pb.DTYPE_BFLOAT16, torch.bfloat16)]
)
def test_elements_are_aligned_wherever_the_payload_lies(
    offset: int, dtype: pb.Dtype.ValueType, torch_dtype: torch.dtype
) -> None:
    rng = random.Random(offset)
    content = rng.randbytes(6 * torch_dtype.itemsize)
    data = bytes(offset) + content
    payloads = lift.Payloads(data)
    message = pb.Tensor(dtype=dtype, shape=[2, 3], inline_bytes=payloads.take(offset, len(content)))
    read = TensorReader(payloads, 0)(message, "target_logits", LOGITS, (2,)).data
    assert read.data_ptr() % torch_dtype.itemsize == 0
    assert read.view(torch.uint8).numpy().tobytes() == content
