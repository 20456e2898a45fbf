"""Steps for tests: one good step as a message, and every way in which it can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sampler_client.v1 import sampler_pb2 as pb

V, D = 16, 12


def tensor(array: np.ndarray, dtype: pb.Dtype.ValueType) -> pb.Tensor:
    return pb.Tensor(dtype=dtype, shape=array.shape, inline_bytes=array.tobytes())


def good_step() -> pb.Step:
    """Two requests, k = 2 and 1, draft logits over a smaller vocabulary, two parameter sets."""
    rng = np.random.default_rng(5)
    return pb.Step(
        target_logits=tensor(rng.normal(size=(5, V)).astype(np.float32), pb.DTYPE_FLOAT32),
        draft_lengths=[2, 1],
        draft_token_ids=tensor(np.array([3, 4, 5], np.int32), pb.DTYPE_INT32),
        draft_blocks=[pb.DraftBlock(logits=tensor(rng.normal(size=(3, D)).astype(np.float32), pb.DTYPE_FLOAT32))],
        params=[pb.SamplingParams(temperature=0.7), pb.SamplingParams(temperature=1.0, top_logprobs=2)],
        params_index=[0, 1],
        seeds=[1, 2],
        positions=[10, 20],
    )


@dataclass(frozen=True)
class Mistake:
    """A change that makes the good step wrong, and what must be said of it."""

    name: str
    change: Callable[[pb.Step], object]
    reason: str
    field: str
    request: int | None = None
    code: str = "INVALID_ARGUMENT"


def _set(**fields: object) -> Callable[[pb.Step], None]:
    def change(step: pb.Step) -> None:
        for name, value in fields.items():
            step.ClearField(name)  # type: ignore[arg-type]
            target = getattr(step, name)
            if hasattr(target, "extend"):
                target.extend(value)
            elif hasattr(target, "CopyFrom"):
                target.CopyFrom(value)
            else:
                setattr(step, name, value)

    return change


def _params(**fields: object) -> Callable[[pb.Step], None]:
    """Break the second request's parameters."""

    def change(step: pb.Step) -> None:
        step.params[1].MergeFrom(pb.SamplingParams(**fields))  # type: ignore[arg-type]

    return change


def _bytes(step: pb.Step, extra: int) -> None:
    data = step.target_logits.inline_bytes
    step.target_logits.inline_bytes = data[:extra] if extra < 0 else data + b"\0" * extra


def _dtype(number: int) -> Callable[[pb.Step], None]:
    return lambda step: setattr(step.target_logits, "dtype", number)


def _shape(*extents: int) -> Callable[[pb.Step], None]:
    return lambda step: _set_shape(step, extents)


def _set_shape(step: pb.Step, extents: tuple[int, ...]) -> None:
    del step.target_logits.shape[:]
    step.target_logits.shape.extend(extents)


def _ids(values: list[int], dtype: type = np.int32) -> Callable[[pb.Step], None]:
    number = pb.DTYPE_INT32 if dtype is np.int32 else pb.DTYPE_INT64
    return lambda step: step.draft_token_ids.CopyFrom(tensor(np.array(values, dtype), number))


def _region(step: pb.Step, region: bytes = b"r" * 16, offset: int = 0) -> None:
    step.session_id = b"s" * 32
    step.target_logits.region.CopyFrom(pb.RegionSlice(region_id=region, offset_bytes=offset))


def _wrong_region(region: bytes = b"r" * 16, offset: int = 0) -> Callable[[pb.Step], None]:
    return lambda step: _region(step, region, offset)


def _cold_region(step: pb.Step) -> None:
    _region(step)
    step.params[1].temperature = 1e-6


def _stride(step: pb.Step, stride: int) -> None:
    step.target_logits.row_stride = stride


def _empty_step(step: pb.Step) -> None:
    step.CopyFrom(pb.Step(target_logits=pb.Tensor(shape=[0, 4])))


def _output_inline(step: pb.Step) -> None:
    step.outputs.num_tokens.CopyFrom(pb.Tensor(shape=[2], inline_bytes=bytes(8)))


def _no_draft_logits(step: pb.Step) -> None:
    step.draft_blocks[0].ClearField("logits")


def _empty_vocabulary(step: pb.Step) -> None:
    step.target_logits.CopyFrom(pb.Tensor(shape=[5, 0]))


def _map(step: pb.Step, ids: list[int]) -> None:
    step.draft_blocks[0].draft_id_map.CopyFrom(tensor(np.array(ids, np.int64), pb.DTYPE_INT64))


def _mask(rows: int, words: int) -> Callable[[pb.Step], None]:
    """Masks that allow everything, for V = 16: one word a row is right, and a row for each of 2 requests or 5 rows."""
    all_ids = np.full((rows, words), -1, np.int32)
    return lambda step: step.token_bitmask.words.CopyFrom(tensor(all_ids, pb.DTYPE_INT32))


IDENTITY = list(range(D))

MISTAKES = [
    Mistake("no logits", lambda s: s.ClearField("target_logits"), "FIELD_REQUIRED", "target_logits"),
    Mistake("no data", lambda s: s.target_logits.ClearField("inline_bytes"), "TENSOR_LENGTH_MISMATCH", "target_logits"),
    Mistake("byte too few", lambda s: _bytes(s, -1), "TENSOR_LENGTH_MISMATCH", "target_logits"),
    Mistake("byte too many", lambda s: _bytes(s, 1), "TENSOR_LENGTH_MISMATCH", "target_logits"),
    Mistake("element too many", lambda s: _bytes(s, 4), "TENSOR_LENGTH_MISMATCH", "target_logits"),
    Mistake("other dtype", _dtype(3), "TENSOR_LENGTH_MISMATCH", "target_logits"),
    Mistake(
        "ids as logits", lambda s: setattr(s.target_logits, "dtype", 5), "DTYPE_UNSUPPORTED", "target_logits.dtype"
    ),
    Mistake("unknown dtype", _dtype(77), "ENUM_UNKNOWN", "target_logits.dtype"),
    Mistake("vector of logits", _shape(80), "TENSOR_SHAPE_INVALID", "target_logits.shape"),
    Mistake("cube of logits", _shape(5, 4, 4), "TENSOR_SHAPE_INVALID", "target_logits.shape"),
    Mistake("no shape", _shape(), "TENSOR_SHAPE_INVALID", "target_logits.shape"),
    Mistake("negative extent", _shape(-5, -16), "TENSOR_SHAPE_INVALID", "target_logits.shape"),
    Mistake("huge extents", _shape(2**62, 2**62), "TENSOR_SHAPE_INVALID", "target_logits.shape"),
    Mistake("span beyond memory", _shape(2**60, 4), "TENSOR_SHAPE_INVALID", "target_logits"),
    Mistake("wide beyond the limit", _shape(1, 2**21), "LIMIT_EXCEEDED", "target_logits"),
    Mistake("many rows, no bytes", _shape(2**40, 16), "TENSOR_LENGTH_MISMATCH", "target_logits"),
    Mistake("short stride", lambda s: _stride(s, V - 1), "TENSOR_STRIDE_INVALID", "target_logits.row_stride"),
    Mistake("negative stride", lambda s: _stride(s, -V), "TENSOR_STRIDE_INVALID", "target_logits.row_stride"),
    Mistake("wide stride", lambda s: _stride(s, V + 1), "TENSOR_LENGTH_MISMATCH", "target_logits"),
    Mistake("no vocabulary", _empty_vocabulary, "EMPTY_VOCABULARY", "target_logits"),
    Mistake("empty batch", lambda s: s.ClearField("draft_lengths"), "SHAPE_MISMATCH", "params_index"),
    Mistake(
        "empty step",
        _empty_step,
        "EMPTY_BATCH",
        "draft_lengths",
    ),
    Mistake("rows that do not add up", _set(draft_lengths=[2, 2]), "SHAPE_MISMATCH", "target_logits"),
    Mistake("negative draft length", _set(draft_lengths=[-1, 2]), "PARAMETER_OUT_OF_RANGE", "draft_lengths[0]", 0),
    Mistake("129 draft tokens", _set(draft_lengths=[2, 129]), "TOO_MANY_DRAFT_TOKENS", "draft_lengths[1]", 1),
    Mistake("too many requests", _set(draft_lengths=[0] * 4097), "LIMIT_EXCEEDED", "draft_lengths"),
    Mistake("missing draft ids", lambda s: s.ClearField("draft_token_ids"), "SHAPE_MISMATCH", "draft_token_ids"),
    Mistake("id beyond the vocabulary", _ids([3, 4, V]), "TOKEN_ID_OUT_OF_RANGE", "draft_token_ids", 1),
    Mistake("id -2", _ids([3, -2, 5]), "TOKEN_ID_OUT_OF_RANGE", "draft_token_ids", 0),
    Mistake("id of 64 bits", _ids([3, 4, 2**40], np.int64), "TOKEN_ID_OUT_OF_RANGE", "draft_token_ids", 1),
    Mistake("id after -1", _ids([-1, 99, 5]), "TOKEN_ID_OUT_OF_RANGE", "draft_token_ids", 0),
    Mistake("id without draft column", _ids([3, 4, D]), "DRAFT_TOKEN_NOT_IN_DRAFT_VOCABULARY", "draft_token_ids", 1),
    Mistake(
        "block without logits",
        _no_draft_logits,
        "FIELD_REQUIRED",
        "draft_blocks[0].logits",
    ),
    Mistake("block of no request", _set(draft_block_index=[0, -1]), "SHAPE_MISMATCH", "draft_blocks[0].logits"),
    Mistake("block index beyond", _set(draft_block_index=[0, 1]), "INDEX_OUT_OF_RANGE", "draft_block_index[1]", 1),
    Mistake("block index short", _set(draft_block_index=[0]), "SHAPE_MISMATCH", "draft_block_index"),
    Mistake("map twice", lambda s: _map(s, [0, 0, *IDENTITY[2:]]), "DUPLICATE_ID_IN_MAP", "draft_id_map"),
    Mistake("map beyond", lambda s: _map(s, [V, *IDENTITY[1:]]), "TOKEN_ID_OUT_OF_RANGE", "draft_id_map"),
    Mistake("map too short", lambda s: _map(s, IDENTITY[1:]), "SHAPE_MISMATCH", "draft_blocks[0].draft_id_map"),
    Mistake("params index beyond", _set(params_index=[0, 2]), "INDEX_OUT_OF_RANGE", "params_index[1]", 1),
    Mistake("params index negative", _set(params_index=[-1, 0]), "INDEX_OUT_OF_RANGE", "params_index[0]", 0),
    Mistake("params index long", _set(params_index=[0, 1, 1]), "SHAPE_MISMATCH", "params_index"),
    Mistake("seeds short", _set(seeds=[1]), "SHAPE_MISMATCH", "seeds"),
    Mistake("positions long", _set(positions=[1, 2, 3]), "SHAPE_MISMATCH", "positions"),
    Mistake("has_seed short", _set(has_seed=[True]), "SHAPE_MISMATCH", "has_seed"),
    Mistake("has_seed without seeds", _set(seeds=[], has_seed=[False, True]), "FIELD_REQUIRED", "seeds", 1),
    Mistake("seed without position", _set(positions=[]), "SEED_WITHOUT_POSITION", "seeds[0]", 0),
    Mistake(
        "one seed without position", _set(positions=[], has_seed=[False, True]), "SEED_WITHOUT_POSITION", "seeds[1]", 1
    ),
    Mistake("position at the end", _set(positions=[0, 2**64 - 1]), "PARAMETER_OUT_OF_RANGE", "positions[1]", 1),
    Mistake("cold", _params(temperature=1e-6), "PARAMETER_OUT_OF_RANGE", "params[1].temperature", 1),
    Mistake("top_p of 0", _params(top_p=0.0), "PARAMETER_OUT_OF_RANGE", "params[1].top_p", 1),
    Mistake("min_p above 1", _params(min_p=1.5), "PARAMETER_OUT_OF_RANGE", "params[1].min_p", 1),
    Mistake("top_k negative", _params(top_k=-1), "PARAMETER_OUT_OF_RANGE", "params[1].top_k", 1),
    Mistake("max_tokens of 0", _params(max_tokens=0), "PARAMETER_OUT_OF_RANGE", "params[1].max_tokens", 1),
    Mistake("257 top logprobs", _params(top_logprobs=257), "PARAMETER_OUT_OF_RANGE", "params[1].top_logprobs", 1),
    Mistake("penalty NaN", _params(presence_penalty=np.nan), "PARAMETER_OUT_OF_RANGE", "params[1].presence_penalty", 1),
    Mistake("unknown method", _params(method=42), "ENUM_UNKNOWN", "params[1].method", 1),
    Mistake("synthetic without rates", _params(method=4), "PARAMETER_REQUIRED", "params[1].synthetic_rates", 1),
    Mistake("stop id beyond", _params(stop_token_ids=[V]), "TOKEN_ID_OUT_OF_RANGE", "params[1].stop_token_ids", 1),
    Mistake(
        "bias twice",
        _params(logit_bias=pb.LogitBias(token_ids=[1, 1], values=[0, 0])),
        "PARAMETER_CONFLICT",
        "params[1].logit_bias.token_ids",
        1,
    ),
    Mistake(
        "bias without value",
        _params(logit_bias=pb.LogitBias(token_ids=[1, 2], values=[0])),
        "SHAPE_MISMATCH",
        "params[1].logit_bias",
        1,
    ),
    Mistake(
        "empty bad word",
        _params(bad_words=pb.BadWords(token_ids=[1], lengths=[1, 0])),
        "PARAMETER_OUT_OF_RANGE",
        "params[1].bad_words.lengths",
        1,
    ),
    Mistake(
        "unknown mode",
        _params(logprobs_modes=pb.LogprobsModes(modes=[1, 9])),  # type: ignore[list-item]
        "ENUM_UNKNOWN",
        "params[1].logprobs_modes.modes[1]",
        1,
    ),
    Mistake(
        "history lengths negative",
        _set(prompt_token_ids=pb.History(lengths=[0, -1])),
        "PARAMETER_OUT_OF_RANGE",
        "prompt_token_ids.lengths[1]",
        1,
    ),
    Mistake(
        "history ids missing",
        _set(output_token_ids=pb.History(lengths=[0, 3])),
        "SHAPE_MISMATCH",
        "output_token_ids.token_ids",
    ),
    Mistake("mask too narrow", _mask(2, 0), "SHAPE_MISMATCH", "token_bitmask"),
    Mistake("masks of nobody", _mask(3, 1), "SHAPE_MISMATCH", "token_bitmask"),
    Mistake("session id short", _set(session_id=b"short"), "ID_LENGTH_INVALID", "session_id"),
    Mistake("event id short", _set(wait_event_id=b"e"), "ID_LENGTH_INVALID", "wait_event_id"),
    Mistake("event without session", _set(wait_event_id=b"e" * 16), "FIELD_REQUIRED", "session_id"),
    Mistake("region id short", _wrong_region(region=b"r"), "ID_LENGTH_INVALID", "target_logits.region.region_id"),
    Mistake(
        "region offset odd",
        _wrong_region(offset=2),
        "TENSOR_OFFSET_INVALID",
        "target_logits.region.offset_bytes",
    ),
    Mistake("unknown reply", _set(reply_when=5), "ENUM_UNKNOWN", "reply_when"),
    Mistake("enqueued without event", _set(reply_when=2), "PARAMETER_REQUIRED", "reply_when"),
    Mistake(
        "output inline",
        _output_inline,
        "FIELD_REQUIRED",
        "outputs.num_tokens.region",
    ),
    Mistake("keep short", _set(keep_params_as=[1]), "SHAPE_MISMATCH", "keep_params_as"),
    # What is right but not built: said only of steps that are otherwise right.
    Mistake("region", _region, "NOT_IMPLEMENTED", "target_logits.region", code="UNIMPLEMENTED"),
    Mistake("session", _set(session_id=b"s" * 32), "NOT_IMPLEMENTED", "session_id", code="UNIMPLEMENTED"),
    Mistake(
        "region and cold",
        _cold_region,
        "PARAMETER_OUT_OF_RANGE",
        "params[1].temperature",
        1,
    ),
    Mistake(
        "sparse history",
        _set(
            prompt_token_ids=pb.History(
                sparse_token_ids=tensor(np.array([4], np.int32), pb.DTYPE_INT32),
                sparse_counts=tensor(np.array([2], np.int32), pb.DTYPE_INT32),
                sparse_lengths=[1, 0],
            )
        ),
        "NOT_IMPLEMENTED",
        "prompt_token_ids",
        code="UNIMPLEMENTED",
    ),
]
