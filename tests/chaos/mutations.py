"""Messages bent in one way each, and what may be said of them. Protobuf itself says which bytes are a message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import grpc
from google.protobuf.message import DecodeError

from sampler_client.v1 import sampler_pb2 as pb
from sampler_service.codec.lift import SMALL
from sampler_service.errors import TABLE
from tests.service.steps import MISTAKES, V, good_step

RESULT = ""
"""Stands for a result among the reasons that are allowed."""

_OF_CONTENT = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED}
CONTENT = frozenset(reason for reason, entry in TABLE.items() if entry.code in _OF_CONTENT) | {"KEPT_STATE_FULL"}
"""What may be wrong with a step itself; nothing here is the server's fault or a matter of time."""

Request = pb.VerifyRequest | pb.VerifyStreamRequest
HUGE = [2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -1, -(2**63)]


@dataclass(frozen=True)
class Bent:
    """A message, and the reasons that its refusal may give.

    Attributes:
        name: Of the mutation.
        data: The message.
        allowed: Reasons; ``RESULT`` among them where it may be right.
        step_id: What the answer on a stream must carry.
    """

    name: str
    data: bytes
    allowed: frozenset[str]
    step_id: int


@dataclass(frozen=True)
class Mutation:
    """One way to bend a step, or the bytes of its request.

    Attributes:
        name: Of what it does.
        step: Changes the step; None leaves it.
        wire: Changes the bytes; None leaves them.
        allowed: Reasons; None where protobuf has to say what the bytes are.
    """

    name: str
    step: Callable[[Random, pb.Step], object] | None = None
    wire: Callable[[Random, bytes], bytes] | None = None
    allowed: frozenset[str] | None = None

    def bend(self, rng: Random, request: Request) -> Bent:
        """A good request, bent; its step is set here, the rest of it is the caller's."""
        request.step.CopyFrom(good_step())
        if self.step is not None:
            self.step(rng, request.step)
        data = request.SerializeToString()
        if self.wire is not None:
            data = self.wire(rng, data)
        allowed, step_id = _verdict(type(request), data)
        return Bent(self.name, data, allowed if self.allowed is None else self.allowed, step_id)


def _verdict(kind: type[Request], data: bytes) -> tuple[frozenset[str], int]:
    many = {"LIMIT_EXCEEDED"} if len(data) > SMALL else set()
    try:
        message = kind.FromString(data)
    except DecodeError:
        return frozenset({"MALFORMED_MESSAGE", *many}), 0
    step_id = message.step_id if isinstance(message, pb.VerifyStreamRequest) else 0
    if not message.HasField("step"):
        return frozenset({"FIELD_REQUIRED", *many}), step_id
    hasty = isinstance(message, pb.VerifyStreamRequest) and message.timeout_us
    return CONTENT | {RESULT} | ({"STEP_DEADLINE_EXCEEDED"} if hasty else set()), step_id


def _cut(rng: Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _noise(rng: Random, _data: bytes) -> bytes:
    return rng.randbytes(rng.randrange(1, 200))


def _flipped(rng: Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5, 30])):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _spliced(rng: Random, data: bytes) -> bytes:
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[start:end] + data[at:]


def _endless_number(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + b"\xff" * rng.randrange(9, 13) + data[at:]


def _unknown_fields(rng: Random, data: bytes) -> bytes:
    """Field 1000 as a number, 1001 as bytes: as a newer client may send."""
    size = rng.randrange(100)
    return data + b"\xc0\x3e\x07\xca\x3e" + bytes([size]) + b"x" * size


def _nested(rng: Random, data: bytes) -> bytes:
    """Groups of field 15 within one another, deeper than any parser follows."""
    depth = rng.randrange(150, 2000)
    return data + b"\x7b" * depth + b"\x7c" * depth


def _many_fields(rng: Random, data: bytes) -> bytes:
    """A step of nothing but empty parameter sets: two bytes each on the wire, hundreds once parsed."""
    inside = b"\x3a\x00" * rng.randrange(70_000, 100_000)
    size, length = len(inside), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    # Field 2 is the step where field 1 is a number, the step's id.
    tag = b"\x12" if data.startswith(b"\x08") else b"\x0a"
    return tag + bytes(length) + bytes([size]) + inside


def _tensors(step: pb.Step) -> list[pb.Tensor]:
    return [step.target_logits, step.draft_token_ids, step.draft_blocks[0].logits]


def _other_length(rng: Random, step: pb.Step) -> None:
    tensor = rng.choice(_tensors(step))
    data = tensor.inline_bytes
    wrong = rng.choice([n for n in (0, 1, len(data) - 1, len(data) + 1, 2 * len(data), 65_536) if n != len(data)])
    tensor.inline_bytes = (data + bytes(wrong))[:wrong]


def _huge_extent(rng: Random, step: pb.Step) -> None:
    tensor = rng.choice(_tensors(step))
    tensor.shape[rng.randrange(len(tensor.shape))] = rng.choice(HUGE)


def _huge_stride(rng: Random, step: pb.Step) -> None:
    step.target_logits.row_stride = rng.choice([one for one in HUGE if one != V])


def _huge_draft_length(rng: Random, step: pb.Step) -> None:
    step.draft_lengths[rng.randrange(2)] = rng.choice([129, 2**31 - 1, -1, -(2**31)])


def _huge_history(rng: Random, step: pb.Step) -> None:
    history = rng.choice([step.prompt_token_ids, step.output_token_ids])
    history.lengths.extend([0, rng.choice([2**20 + 1, 2**31 - 1, -1, 5])])


def _long_list(rng: Random, step: pb.Step) -> None:
    params = step.params[1]
    rng.choice([params.stop_token_ids, params.logprob_token_ids]).extend([0] * rng.randrange(1025, 3000))


_TENSOR = frozenset({"TENSOR_SHAPE_INVALID", "TENSOR_LENGTH_MISMATCH", "LIMIT_EXCEEDED", "SHAPE_MISMATCH"})

WRONG: list[Mutation] = [
    Mutation("cut", wire=_cut),
    Mutation("noise", wire=_noise),
    Mutation("flipped bits", wire=_flipped),
    Mutation("spliced", wire=_spliced),
    Mutation("endless number", wire=_endless_number),
    Mutation("nested", wire=_nested, allowed=frozenset({"MALFORMED_MESSAGE"})),
    Mutation("many fields", wire=_many_fields, allowed=frozenset({"LIMIT_EXCEEDED"})),
    Mutation("other length", _other_length, allowed=frozenset({"TENSOR_LENGTH_MISMATCH"})),
    Mutation("huge extent", _huge_extent, allowed=_TENSOR),
    Mutation("huge stride", _huge_stride, allowed=_TENSOR | {"TENSOR_STRIDE_INVALID"}),
    Mutation(
        "huge draft length", _huge_draft_length, allowed=frozenset({"TOO_MANY_DRAFT_TOKENS", "PARAMETER_OUT_OF_RANGE"})
    ),
    Mutation(
        "huge history",
        _huge_history,
        allowed=frozenset({"LIMIT_EXCEEDED", "SHAPE_MISMATCH", "PARAMETER_OUT_OF_RANGE"}),
    ),
    Mutation("long list", _long_list, allowed=frozenset({"LIMIT_EXCEEDED"})),
]
MISTAKEN = [
    Mutation("mistake", lambda _, step, one=one: one.change(step), allowed=frozenset({one.reason}))  # type: ignore[misc]
    for one in MISTAKES
]
RIGHT = [
    Mutation("right", allowed=frozenset({RESULT})),
    Mutation("unknown fields", wire=_unknown_fields, allowed=frozenset({RESULT})),
]


def bend(rng: Random, request: Request) -> Bent:
    """A request bent in some way: half of them as bytes or counts, a third by a plain mistake, the rest right."""
    kinds = rng.choices([WRONG, MISTAKEN, RIGHT], [3, 2, 1])[0]
    return rng.choice(kinds).bend(rng, request)
