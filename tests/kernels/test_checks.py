"""Every refusal: its reason, and that its message names the request, the field, the value and what is legal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan
from typing import Any, cast

import numpy as np
import pytest
import torch

from sampler_kernels import (
    DraftBlock,
    IdMap,
    LogprobsMode,
    Method,
    Ragged,
    Reason,
    SamplingParams,
    Step,
    StepRefused,
    TokenCounts,
    check,
)

V, WIDTH = 10, 12
LENGTHS = [3, 0, 2]
"""The draft ids of the steps below lie at positions 0..2 of request 0 and 0..1 of request 2."""


def make_step(**changes: object) -> Step:
    """A legal step of three requests with draft logits that are wider than the target's."""
    parts: dict[str, Any] = {
        "target_logits": torch.zeros(8, V),
        "draft_token_ids": torch.tensor([1, 2, 3, -1, 9]),
        "draft_lengths": LENGTHS,
        "draft_blocks": [DraftBlock(torch.zeros(5, WIDTH))],
        "seeds": [1, None, 2**64 - 1],
        "positions": [0, 5, 2**64 - 3],
    }
    return Step(**(parts | changes))


def refusal_of(step: Step, backend: str = "cpu") -> StepRefused:
    with pytest.raises(StepRefused) as caught:
        check(step, backend)
    return caught.value


@dataclass
class Case:
    """Changes that make the legal step illegal, and what the refusal must say."""

    reason: Reason
    field: str
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    request: int | None = None
    position: int | None = None
    says: str = ""

    def __str__(self) -> str:
        return f"{self.reason.value}-{self.field}-{self.says}"


def params(reason: Reason, name: str, says: str, **given: object) -> Case:
    """A case of one bad parameter set, which requests 1 and 2 use."""
    changes = {"params": [SamplingParams(), SamplingParams(**cast("Any", given))], "params_index": [0, 1, 1]}
    return Case(reason, name, changes, request=1, says=says)


LISTS_OF_IDS: dict[str, Callable[[int], object]] = {
    "stop_token_ids": lambda token: [0, token],
    "allowed_token_ids": lambda token: [token],
    "allowed_token_ids_by_row": lambda token: [[1], [token]],
    "logit_bias": lambda token: {token: 1.0},
    "bad_words": lambda token: [[1], [2, token]],
    "logprob_token_ids": lambda token: [token],
}
RANGE, IDS, CONFLICT = Reason.PARAMETER_OUT_OF_RANGE, Reason.TOKEN_ID_OUT_OF_RANGE, Reason.PARAMETER_CONFLICT
BAD_PARAMETERS = [
    *(
        params(RANGE, name, f"{name} is {value}; it must be", **{name: value})
        for name, values in {
            "temperature": (-1.0, 9e-6, inf, nan),
            "draft_temperature": (-0.5, 1e-6, inf, nan),
            "top_p": (0.0, -0.1, 1.01, nan),
            "min_p": (-0.01, 1.5, nan),
            "top_k": (-1,),
            "repetition_penalty": (0.0, -1.0, 1e-46, 1e39, inf, nan),
            "frequency_penalty": (1e39, inf, -inf, nan),
            "presence_penalty": (-1e39, inf, nan),
            "typical_epsilon": (0.0, 1.1, nan),
            "typical_delta": (0.0, 1.1, nan),
            "relaxed_top_n": (0,),
            "relaxed_margin": (-0.1, nan),
            "max_tokens": (0, -3),
            "min_tokens": (-1,),
            "top_logprobs": (-1, 257),
        }.items()
        for value in values
    ),
    params(RANGE, "method", "one of standard", method="standard"),
    params(RANGE, "logprobs_modes", "one of raw_logprobs", logprobs_modes=["raw"]),
    params(RANGE, "synthetic_rates", "synthetic_rates[1] is 1.5", synthetic_rates=[0.5, 1.5]),
    params(RANGE, "synthetic_rates", "synthetic_rates[0] is nan", synthetic_rates=[nan]),
    params(RANGE, "logit_bias", "logit_bias[3] is nan", logit_bias={3: nan}),
    params(RANGE, "logit_bias", "logit_bias[4] is inf", logit_bias={3: 1.0, 4: inf}),
    params(RANGE, "allowed_token_ids", "at least one id", allowed_token_ids=[]),
    params(RANGE, "allowed_token_ids_by_row", "by_row[1] is []", allowed_token_ids_by_row=[[1], []]),
    params(RANGE, "bad_words", "bad_words[0] is []", bad_words=[[]]),
    *(
        params(IDS, name, f"is {token}; it must be in [0, {V})", **{name: make(token)})
        for name, make in LISTS_OF_IDS.items()
        for token in (-1, V, 2**70)
    ),
    params(CONFLICT, "allowed_token_ids", "at most one", allowed_token_ids=[1], allowed_token_ids_by_row=[[1]]),
    Case(
        Reason.PARAMETER_REQUIRED,
        "synthetic_rates",
        {"params": [SamplingParams(), SamplingParams(method=Method.SYNTHETIC)], "params_index": [0, 1, 1]},
        request=2,  # request 1 has no draft tokens, and needs none
        says="synthetic requires",
    ),
    params(Reason.PARAMETER_REQUIRED, "relaxed_top_n", "", method=Method.RELAXED, relaxed_margin=1.0),
    params(Reason.PARAMETER_REQUIRED, "relaxed_margin", "", method=Method.RELAXED, relaxed_top_n=1),
    Case(
        RANGE,
        "synthetic_rates",
        {"params": [SamplingParams(), SamplingParams(synthetic_rates=[0.5])], "params_index": [0, 1, 1]},
        request=2,
        says="1 entries for 2 draft tokens",
    ),
    Case(
        RANGE,
        "allowed_token_ids_by_row",
        {"params": [SamplingParams(allowed_token_ids_by_row=[[1]] * 4)]},
        request=1,
        says="4 entries for 0 draft tokens",
    ),
]

TABLE = torch.zeros(5, WIDTH)
BAD_STEPS = [
    Case(Reason.EMPTY_BATCH, "draft_lengths", {"draft_lengths": []}),
    Case(Reason.EMPTY_VOCABULARY, "target_logits", {"target_logits": torch.zeros(8, 0)}),
    Case(Reason.EMPTY_VOCABULARY, "draft_blocks[0].logits", {"draft_blocks": [DraftBlock(torch.zeros(5, 0))]}),
    Case(Reason.SHAPE_MISMATCH, "target_logits", {"target_logits": torch.zeros(7, V)}, says="7 entries; it must"),
    Case(Reason.SHAPE_MISMATCH, "draft_token_ids", {"draft_token_ids": torch.zeros(6, dtype=torch.int32)}, says="5"),
    Case(Reason.SHAPE_MISMATCH, "draft_blocks[0].logits", {"draft_blocks": [DraftBlock(torch.zeros(4, V))]}),
    Case(Reason.SHAPE_MISMATCH, "draft_blocks[1].logits", {"draft_blocks": [DraftBlock(TABLE)] * 2,
        "draft_block_index": [0, -1, 0]}, says="5 entries; it must have 0"),
    Case(Reason.SHAPE_MISMATCH, "seeds", {"seeds": [1]}),
    Case(Reason.SHAPE_MISMATCH, "positions", {"positions": [1] * 4}),
    Case(Reason.SHAPE_MISMATCH, "params_index", {"params_index": [0]}),
    Case(Reason.SHAPE_MISMATCH, "draft_block_index", {"draft_block_index": [0]}),
    Case(Reason.SHAPE_MISMATCH, "num_output_tokens", {"num_output_tokens": [0]}),
    Case(Reason.SHAPE_MISMATCH, "draft_blocks[0].draft_id_map",
        {"draft_blocks": [DraftBlock(TABLE, IdMap(torch.arange(3), V))]}, says="3 entries; it must have 12"),
    Case(Reason.SHAPE_MISMATCH, "draft_blocks[0].draft_id_map",
        {"draft_blocks": [DraftBlock(torch.zeros(5, 3), IdMap(torch.arange(3), 9))]}, says="made for 9"),
    Case(Reason.SHAPE_MISMATCH, "prompt_token_ids",
        {"prompt_token_ids": Ragged(torch.zeros(2, dtype=torch.int64), [0, 2])}),
    Case(Reason.SHAPE_MISMATCH, "output_token_ids",
        {"output_token_ids": Ragged(torch.zeros(2, dtype=torch.int64), [0, 2, 1, 2])}),
    Case(Reason.SHAPE_MISMATCH, "output_token_ids",
        {"output_token_ids": Ragged(torch.zeros(2, dtype=torch.int64), [0, 2, 2, 3])}),
    Case(Reason.SHAPE_MISMATCH, "token_bitmask", {"token_bitmask": torch.zeros(1, 1, dtype=torch.int32)}),
    Case(Reason.SHAPE_MISMATCH, "token_bitmask", {"token_bitmask": torch.zeros(1, 2, dtype=torch.int32),
        "token_bitmask_index": [0] * 8}, says="2 words"),
    Case(Reason.SHAPE_MISMATCH, "target_logsumexp", {"target_logsumexp": torch.zeros(7, dtype=torch.float64)}),
    Case(Reason.SHAPE_MISMATCH, "draft_logsumexp", {"draft_logsumexp": torch.zeros(6, dtype=torch.float64)}),
    Case(Reason.LAYOUT_UNSUPPORTED, "target_logits", {"target_logits": torch.zeros(V, 8).T}, says="last stride 8"),
    Case(Reason.LAYOUT_UNSUPPORTED, "target_logits", {"target_logits": torch.zeros(80)}),
    Case(Reason.LAYOUT_UNSUPPORTED, "target_logits", {"target_logits": torch.zeros(8, V).to_sparse()}),
    Case(Reason.LAYOUT_UNSUPPORTED, "draft_token_ids", {"draft_token_ids": torch.zeros(5, 1, dtype=torch.int32)}),
    Case(Reason.LAYOUT_UNSUPPORTED, "draft_blocks[0].logits",
        {"draft_blocks": [DraftBlock(torch.zeros(5, V, device="meta"))]}, says="lies on meta"),
    Case(Reason.DTYPE_UNSUPPORTED, "target_logits", {"target_logits": torch.zeros(8, V, dtype=torch.float64)},
        says="float64"),
    Case(Reason.DTYPE_UNSUPPORTED, "draft_token_ids", {"draft_token_ids": torch.zeros(5)}, says="int32 or int64"),
    Case(Reason.DTYPE_UNSUPPORTED, "draft_blocks[1].logits",
        {"draft_blocks": [DraftBlock(TABLE), DraftBlock(torch.zeros(0, V).half())], "draft_block_index": [0, 1, 0]}),
    Case(Reason.DTYPE_UNSUPPORTED, "target_logsumexp", {"target_logsumexp": torch.zeros(8)}),
    Case(Reason.TOO_MANY_DRAFT_TOKENS, "draft_lengths", {"draft_lengths": [3, 129, 2]}, request=1, says="129"),
    Case(RANGE, "draft_lengths", {"draft_lengths": [3, 0, -2]}, request=2, says="-2"),
    Case(RANGE, "draft_lengths", {"draft_lengths": [3, 0.0, 2]}, request=1, says="an integer"),
    Case(RANGE, "seeds", {"seeds": [1, -1, 2]}, request=1, says="-1"),
    Case(RANGE, "seeds", {"seeds": [None, 1, 2**64]}, request=2, says=str(2**64)),
    Case(RANGE, "positions", {"positions": [0, -5, 0]}, request=1, says="-5"),
    Case(RANGE, "positions", {"positions": [0, 2**64 - 1, 2**64 - 2]}, request=2, says="below 2^64"),
    Case(RANGE, "positions", {"positions": [0, None, 0]}, request=1, says="None"),
    Case(RANGE, "num_output_tokens", {"num_output_tokens": [0, -2, 0]}, request=1, says="-2"),
    Case(Reason.INDEX_OUT_OF_RANGE, "params", {"params": []}),
    Case(Reason.INDEX_OUT_OF_RANGE, "params_index", {"params_index": [0, 0, 1]}, request=2, says="[0, 1)"),
    Case(Reason.INDEX_OUT_OF_RANGE, "draft_block_index", {"draft_block_index": [0, 0, -2]}, request=2, says="-2"),
    Case(Reason.INDEX_OUT_OF_RANGE, "draft_block_index", {"draft_block_index": [0, 1, 0]}, request=1, says="1"),
    Case(Reason.INDEX_OUT_OF_RANGE, "token_bitmask.mask_index",
        {"token_bitmask": torch.zeros(1, 1, dtype=torch.int32), "token_bitmask_index": [0] * 7 + [1]}, says="[7] is 1"),
]  # fmt: skip

MAP = [4, 2, 7]
MAPPED = [DraftBlock(torch.zeros(5, 3), IdMap(torch.tensor(MAP), V))]
LOGSUMEXPS: dict[str, Any] = {"target_logsumexp": torch.zeros(8, dtype=torch.float64)}
SUITABLE: dict[str, Any] = {"ranks": False, "logprobs_modes": [LogprobsMode.RAW_LOGITS]}


def ids(*draft_token_ids: int, **changes: object) -> dict[str, Any]:
    return {"draft_token_ids": torch.tensor(draft_token_ids), **changes}


MISSING = Reason.DRAFT_TOKEN_NOT_IN_DRAFT_VOCABULARY
NARROW = [DraftBlock(torch.zeros(5, 4))]
BAD_IDS = [
    Case(IDS, "draft_token_ids", ids(1, 2, 3, 4, WIDTH), 2, 1, f"is {WIDTH}; it must be -1 or in [0, {WIDTH})"),
    Case(IDS, "draft_token_ids", ids(1, 2, V, 4, 5, draft_blocks=[]), 0, 2, f"in [0, {V})"),
    Case(IDS, "draft_token_ids", ids(1, 2, 3, -2, 5), 2, 0, "-2"),
    Case(IDS, "draft_token_ids", ids(1, -1, -7, 4, 5), 0, 2, "-7"),
    Case(IDS, "draft_token_ids", ids(1, 2, 3, 2**32, 5, draft_blocks=[]), 2, 0, str(2**32)),
    Case(IDS, "draft_token_ids", ids(4, 2, 7, V, 4, draft_blocks=MAPPED), 2, 0, f"in [0, {V})"),
    Case(
        IDS,
        "draft_token_ids",
        ids(1, 2, V, 4, 5, draft_blocks=[DraftBlock(torch.zeros(2, WIDTH))], draft_block_index=[-1, -1, 0]),
        *(0, 2, f"in [0, {V})"),
    ),
    Case(MISSING, "draft_token_ids", ids(1, 2, 4, 0, 0, draft_blocks=NARROW), 0, 2, "is 4"),
    Case(MISSING, "draft_token_ids", ids(4, 2, 7, -1, 5, draft_blocks=MAPPED), 2, 1, "is 5"),
    Case(
        MISSING,
        "draft_token_ids",
        ids(1, 2, 4, 0, 0, draft_blocks=NARROW, params=[SamplingParams(temperature=0)]),
        *(0, 2, "is 4"),
    ),
    Case(
        MISSING,
        "draft_token_ids",
        ids(4, 2, 7, 5, 4, draft_blocks=MAPPED, params=[SamplingParams(draft_temperature=0)]),
        *(2, 0, "is 5"),
    ),
    *(
        Case(
            reason, "draft_id_map", ids(4, 4, 4, 4, 4, draft_blocks=[DraftBlock(torch.zeros(5, 3), id_map)]), says=says
        )
        for reason, id_map, says in (
            (IDS, IdMap(torch.tensor([4, V, 1]), V), f"draft_id_map[1] is {V}"),
            (IDS, IdMap(torch.tensor([4, 1, -1]), V), "draft_id_map[2] is -1"),
            (Reason.DUPLICATE_ID_IN_MAP, IdMap(torch.tensor([4, 1, 4]), V), "target id 4 more than once"),
        )
    ),
]

UNSUITABLE: dict[str, dict[str, Any]] = {
    "method": {"method": Method.BLOCK},
    "temperature": {"temperature": 0},
    "top_k": {"top_k": 5},
    "logit_bias": {"logit_bias": {1: 1.0}},
    "ranks": {"ranks": True},
    "top_logprobs": {"top_logprobs": 1},
    "logprobs_modes": {"logprobs_modes": [LogprobsMode.RAW_LOGPROBS], "temperature": 0.5},
}
UNSUITED_TO_LOGSUMEXPS = [
    Case(CONFLICT, name, LOGSUMEXPS | {"params": [SamplingParams(**(SUITABLE | given))]}, request=0, says=name)
    for name, given in UNSUITABLE.items()
]
MASK: dict[str, Any] = {"token_bitmask": torch.zeros(1, 1, dtype=torch.int32), "token_bitmask_index": [0] * 8}
UNSUITED_TO_LOGSUMEXPS.append(
    Case(CONFLICT, "token_bitmask", LOGSUMEXPS | MASK | {"params": [SamplingParams(**SUITABLE)]}, request=0)
)


def counts(cu: list[int], each: list[int], **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """Counts of output ids 0, 1, ... as many as there are of them, laid out by ``cu``."""
    found = TokenCounts(Ragged(torch.arange(cu[-1]), cu), torch.tensor(each, dtype=torch.int64))
    return {"output_token_counts": found} | changes


GIVEN = Ragged(torch.tensor([1, 2]), [0, 1, 1, 2])
BAD_COUNTS = [
    Case(Reason.SHAPE_MISMATCH, "output_token_ids", counts([0, 1, 2], [1, 1]), says="4"),
    Case(
        Reason.SHAPE_MISMATCH,
        "output_token_ids.sparse_counts",
        counts([0, 0, 1, 2], [1]),
        says="one for each sparse id",
    ),
    Case(RANGE, "output_token_ids.sparse_counts", counts([0, 0, 1, 2], [1, 0]), says="at least 1"),
    Case(CONFLICT, "output_token_ids", counts([0, 0, 1, 2], [1, 1], output_token_ids=GIVEN), request=2, says="both"),
    Case(
        CONFLICT,
        "bad_words",
        counts([0, 0, 1, 1], [1], params=[SamplingParams(bad_words=[[1], [2, 3]])]),
        request=1,
        says="order",
    ),
]

BUILT_EVERYWHERE: list[dict[str, Any]] = [
    {"method": Method.STRICT},
    {"method": Method.BLOCK},
    {"method": Method.SYNTHETIC, "synthetic_rates": [0.5] * 3, "temperature": 0},
    {"method": Method.TYPICAL, "temperature": 0},
    {"method": Method.RELAXED, "relaxed_top_n": 1, "relaxed_margin": 0.0, "temperature": 0},
    {"top_k": V - 1},
    {"top_p": 0.9},
    {"min_p": 0.1},
    {"logit_bias": {1: 1.0}},
    {"min_tokens": 1},
    {"repetition_penalty": 1.1, "temperature": 0},
    {"frequency_penalty": 0.1},
    {"presence_penalty": 0.1},
    {"bad_words": [[1]]},
    {"allowed_token_ids": [1]},
    {"stop_token_ids": [1]},
    {"max_tokens": 1},
    {"logprobs_modes": [LogprobsMode.PROCESSED_LOGPROBS]},
    {"logprobs_modes": [LogprobsMode.RAW_LOGITS]},
    {"logprobs_modes": [LogprobsMode.PROCESSED_LOGITS]},
    {"acceptance_probabilities": True},
]

NOT_BUILT = [
    Case(
        Reason.NOT_IMPLEMENTED,
        "target_logsumexp",
        LOGSUMEXPS | {"params": [SamplingParams(**SUITABLE)]},
        says="not built yet",
    ),
    Case(
        Reason.NOT_IMPLEMENTED,
        "draft_logsumexp",
        {"draft_logsumexp": torch.zeros(5, dtype=torch.float64), "params": [SamplingParams(**SUITABLE)]},
        says="not built yet",
    ),
]

CASES = [*BAD_PARAMETERS, *BAD_STEPS, *BAD_COUNTS, *BAD_IDS, *UNSUITED_TO_LOGSUMEXPS, *NOT_BUILT]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_refusal_says_what_and_where(case: Case) -> None:
    # What one backend lacks another may have; rules hold on all.
    backend = "triton" if case.reason is Reason.NOT_IMPLEMENTED else "cpu"
    refused = refusal_of(make_step(**case.changes), backend)
    assert (refused.reason, refused.field) == (case.reason, case.field)
    assert (refused.request, refused.position) == (case.request, case.position)
    assert case.field in refused.message
    assert case.says in refused.message
    if case.request is not None:
        assert f"request {case.request}" in refused.message
    assert refused.code == ("UNIMPLEMENTED" if case.reason is Reason.NOT_IMPLEMENTED else "INVALID_ARGUMENT")


@pytest.mark.parametrize("backend", ["cpu", "triton"])
@pytest.mark.parametrize("given", BUILT_EVERYWHERE, ids=str)
def test_what_every_backend_has_passes(given: dict[str, Any], backend: str) -> None:
    check(make_step(params=[SamplingParams(**given)]), backend)


def test_masks_pass_on_every_backend() -> None:
    check(make_step(**MASK), "triton")
    alone: dict[str, Any] = {"draft_lengths": [0], "draft_blocks": [], "seeds": None, "positions": None}
    by_row = [SamplingParams(allowed_token_ids_by_row=[[1]])]
    none = torch.zeros(0, dtype=torch.int32)
    check(make_step(target_logits=torch.zeros(1, V), params=by_row, draft_token_ids=none, **alone), "triton")


def test_every_reason_has_a_case() -> None:
    assert {case.reason for case in CASES} == set(Reason)


def test_a_refusal_is_not_remembered_as_a_pass() -> None:
    step = make_step(params=[SamplingParams(top_p=2.0)])
    assert str(refusal_of(step)) == str(refusal_of(step))


def test_a_set_is_checked_again_for_a_smaller_vocabulary() -> None:
    wishes = [SamplingParams(logprob_token_ids=[V - 1])]
    check(make_step(params=wishes))
    smaller = make_step(params=wishes, target_logits=torch.zeros(8, V - 1))
    assert refusal_of(smaller).reason is IDS


def test_ranges_come_before_what_is_not_built() -> None:
    sets = [SamplingParams(method=Method.BLOCK, top_k=3), SamplingParams(min_p=2.0)]
    assert refusal_of(make_step(params=sets, params_index=[0, 0, 1])).field == "min_p"


def test_a_set_that_nobody_uses_is_checked_and_blamed_on_nobody() -> None:
    refused = refusal_of(make_step(params=[SamplingParams(), SamplingParams(top_p=2.0)]))
    assert (refused.field, refused.request) == ("top_p", None)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"draft_token_ids": torch.tensor([1, 2, 11, -1, 9], dtype=torch.int32)},  # within [V, V_d)
        {"draft_blocks": MAPPED, "draft_token_ids": torch.tensor([4, -1, 2, 7, 7])},
        {"draft_blocks": [], "draft_token_ids": torch.tensor([-1, -1, 3, 0, 9])},
        {
            "draft_blocks": [DraftBlock(torch.zeros(3, 4)), DraftBlock(torch.zeros(2, V))],
            "draft_block_index": [0, 1, 1],
        },
        {"target_logits": torch.zeros(8, 3 * V)[:, :V]},
        {"target_logits": torch.zeros(1, V).expand(8, V).half(), "draft_blocks": [DraftBlock(TABLE.bfloat16())]},
        {"seeds": None, "positions": None},
        {"seeds": np.array([1, 2, 3]), "positions": np.array([0, 0, 0], np.uint64)},
        {"draft_lengths": np.array(LENGTHS), "params_index": (0, 0, 0)},
        {"positions": [2**64 - 4, 2**64 - 1, 2**64 - 3]},
        {"prompt_token_ids": Ragged(torch.tensor([-1, 999]), [0, 1, 1, 2]), "num_output_tokens": [0, -1, 9]},
        {"params": [SamplingParams(temperature=1e-5, draft_temperature=0, top_k=V, top_logprobs=256)]},
        {"params": [SamplingParams(temperature=0, method=Method.BLOCK, top_p=0.5, top_k=3, min_p=0.1)]},
        {"params": [SamplingParams(typical_epsilon=1, typical_delta=1, relaxed_margin=inf, synthetic_rates=[0, 1, 1])]},
        {"params": [SamplingParams(logprobs_modes=[], ranks=False, logprob_token_ids=[V - 1, 0])]},
    ],
)
def test_what_is_legal_passes(changes: dict[str, Any]) -> None:
    check(make_step(**changes))


def test_a_vocabulary_of_one_column_needs_no_unit_stride() -> None:
    column = torch.zeros(8, 4)[:, ::2][:, :1]
    none = torch.full((5,), -1)
    check(make_step(target_logits=column, draft_token_ids=none, draft_blocks=[DraftBlock(torch.zeros(5, 1))]))


def test_no_rows_need_no_unit_stride() -> None:
    no_rows = torch.empty_strided((0, WIDTH), (0, 0))
    blocks = [DraftBlock(torch.zeros(5, WIDTH)), DraftBlock(no_rows)]
    check(make_step(draft_blocks=blocks, draft_block_index=[0, 1, 0]))


def test_each_request_uses_its_own_draft_vocabulary() -> None:
    blocks = [DraftBlock(torch.zeros(3, 3), IdMap(torch.tensor(MAP), V)), DraftBlock(torch.zeros(2, 4))]
    step = make_step(draft_blocks=blocks, draft_block_index=[0, -1, 1], draft_token_ids=torch.tensor([7, 2, 4, 3, 7]))
    refused = refusal_of(step)
    assert (refused.reason, refused.request, refused.position) == (MISSING, 2, 1)
