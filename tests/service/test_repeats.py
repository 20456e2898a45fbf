"""Steps that repeat an earlier one: the short way says what the full way says, and is taken where it should be."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
import torch

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels.host import HostColumns
from sampler_service.codec import lift, repeats
from sampler_service.codec.kept import KeptState
from sampler_service.codec.parse import parse
from sampler_service.codec.step import StepDecoder
from sampler_service.errors import Refusal
from sampler_service.limits import Limits
from sampler_service.steps import CheckedStep
from tests.service.steps import MISTAKES, Mistake, V, good_step, tensor

Change = Callable[[pb.Step, np.random.Generator], object]


def decode(decoder: StepDecoder, step: pb.Step, kept: KeptState | None = None) -> CheckedStep:
    message, tensors = parse(pb.VerifyRequest, pb.VerifyRequest(step=step).SerializeToString())
    return decoder.decode(message.step, tensors, kept)


def outcome(decoder: StepDecoder, step: pb.Step, kept: KeptState | None = None) -> object:
    """Everything that a step became, or everything that was said against it."""
    try:
        checked = decode(decoder, step, kept)
    except Refusal as refusal:
        return str(refusal), refusal.reason, refusal.field, refusal.request, refusal.position
    found = checked.step
    tensors = [found.target_logits, found.draft_token_ids, *(block.logits for block in found.draft_blocks)]
    read = [(t.dtype, t.shape, t.stride(), t.numpy().tobytes()) for t in tensors]
    columns = [getattr(checked.columns, field.name).tolist() for field in fields(HostColumns)]
    return read, columns, list(found.draft_lengths), found.params_index, [repr(one) for one in found.params]


@pytest.fixture(params=[lift.SMALL, -1], ids=["whole", "lifted"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Payloads in the parsed message, and taken out of it."""
    monkeypatch.setattr(lift, "SMALL", request.param)


@pytest.fixture
def short_ways(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each step that met a remembered form, whether the short way was taken to its end."""
    taken: list[bool] = []
    fill = repeats._Form.fill

    def noted(self: repeats._Form, *args: object) -> CheckedStep | None:
        checked = fill(self, *args)  # type: ignore[arg-type]
        taken.append(checked is not None)
        return checked

    monkeypatch.setattr(repeats._Form, "fill", noted)
    return taken


def other_numbers(step: pb.Step, rng: np.random.Generator) -> None:
    """Logits, ids, seeds and positions of another step of the same form."""
    for one in (step.target_logits, step.draft_blocks[0].logits):
        one.inline_bytes = rng.normal(size=len(one.inline_bytes) // 4).astype(np.float32).tobytes()
    step.draft_token_ids.inline_bytes = rng.integers(-1, 12, 3).astype(np.int32).tobytes()
    del step.seeds[:], step.positions[:]
    step.seeds.extend(rng.integers(0, 2**64, 2, np.uint64, endpoint=False).tolist())
    step.positions.extend(rng.integers(0, 2**63, 2).tolist())


@pytest.mark.usefixtures("either_way")
def test_the_short_way_is_the_full_way(short_ways: list[bool]) -> None:
    rng, decoder = np.random.default_rng(0), StepDecoder(Limits())
    step = good_step()
    for _ in range(20):
        other_numbers(step, rng)
        assert outcome(decoder, step) == outcome(StepDecoder(Limits()), step)
    assert short_ways == [True] * 19


CHANGES: dict[str, Change] = {
    "numbers": other_numbers,
    "id out of range": lambda s, _: setattr(s.draft_token_ids, "inline_bytes", np.array([1, V, 2], np.int32).tobytes()),
    "id without column": lambda s, _: setattr(
        s.draft_token_ids, "inline_bytes", np.array([1, 13, 2], np.int32).tobytes()
    ),
    "id below -1": lambda s, _: setattr(s.draft_token_ids, "inline_bytes", np.array([1, -2, 2], np.int32).tobytes()),
    "bytes short": lambda s, _: setattr(s.target_logits, "inline_bytes", s.target_logits.inline_bytes[:-4]),
    "no bytes": lambda s, _: setattr(s.target_logits, "inline_bytes", b""),
    "no tensor": lambda s, _: s.ClearField("draft_token_ids"),
    "dtype": lambda s, _: setattr(s.target_logits, "dtype", pb.DTYPE_INT32),
    "last position": lambda s, _: s.positions.__setitem__(0, 2**64 - 3),
    "position too far": lambda s, _: s.positions.__setitem__(0, 2**64 - 2),
    "one seed": lambda s, _: s.seeds.pop(),
    "no seeds": lambda s, _: s.ClearField("seeds"),
    "no positions": lambda s, _: s.ClearField("positions"),
    "lengths": lambda s, _: s.draft_lengths.__setitem__(slice(None), [1, 2]),
    "params": lambda s, _: setattr(s.params[0], "temperature", 0.5),
    "bad params": lambda s, _: setattr(s.params[0], "temperature", -0.5),
    "index": lambda s, _: s.params_index.__setitem__(0, 1),
    "has_seed": lambda s, _: s.has_seed.extend([True, False]),
    "map": lambda s, r: s.draft_blocks[0].draft_id_map.CopyFrom(tensor(r.permutation(V)[:12], pb.DTYPE_INT64)),
    "bitmask": lambda s, r: s.token_bitmask.words.CopyFrom(
        tensor(r.integers(1, 2**15, (2, 1)).astype(np.int32), pb.DTYPE_INT32)
    ),
    "output length": lambda s, r: s.num_output_tokens.extend(r.integers(0, 9, 2).tolist()),
}


@pytest.mark.usefixtures("either_way")
def test_whatever_comes_in_whatever_order(short_ways: list[bool]) -> None:
    rng, decoder = np.random.default_rng(1), StepDecoder(Limits())
    names = list(CHANGES)
    for _ in range(600):
        step = good_step()
        other_numbers(step, rng)
        CHANGES["numbers" if rng.random() < 0.3 else rng.choice(names)](step, rng)
        assert outcome(decoder, step) == outcome(StepDecoder(Limits()), step)
    # Forms are met often enough, by steps that fit and by steps that do not, for the comparison to mean something.
    assert short_ways.count(True) > 60
    assert short_ways.count(False) > 60


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistakes_after_a_good_step_are_refused_as_ever(mistake: Mistake) -> None:
    decoder, wrong = StepDecoder(Limits()), good_step()
    decode(decoder, good_step())
    mistake.change(wrong)
    assert outcome(decoder, wrong) == outcome(StepDecoder(Limits()), wrong)


def test_a_kept_set_that_changed_is_not_taken_for_the_old_one(short_ways: list[bool]) -> None:
    decoder, kept = StepDecoder(Limits()), KeptState(Limits())
    keeping, named = good_step(), good_step()
    keeping.keep_params_as.extend([1, 2])
    named.ClearField("params")
    named.kept_params.extend([1, 2])
    temperatures = []
    for temperature in (0.3, 0.4):
        keeping.params[0].temperature = temperature
        decode(decoder, keeping, kept)
        temperatures += [decode(decoder, named, kept).step.params[0].temperature for _ in range(2)]
    assert temperatures == [0.3, 0.3, 0.4, 0.4]
    assert short_ways == [True, True]
    del keeping.params[:], keeping.keep_params_as[:], keeping.params_index[:]
    keeping.forget.params.append(1)
    decode(decoder, keeping, kept)
    with pytest.raises(Refusal, match="KEPT_STATE_NOT_FOUND"):
        decode(decoder, named, kept)


def test_streams_do_not_share_forms_of_kept_sets() -> None:
    decoder, mine, other = StepDecoder(Limits()), KeptState(Limits()), KeptState(Limits())
    keeping, named = good_step(), good_step()
    keeping.keep_params_as.extend([1, 2])
    named.ClearField("params")
    named.kept_params.extend([1, 2])
    decode(decoder, keeping, mine)
    decode(decoder, named, mine)
    for kept in (other, None):
        with pytest.raises(Refusal, match="KEPT_STATE"):
            decode(decoder, named, kept)


def test_forms_hold_no_logits_and_are_few() -> None:
    decoder = StepDecoder(Limits())
    for k in range(1, repeats._ENTRIES + 5):
        step = pb.Step(
            target_logits=tensor(np.zeros((k + 1, V), np.float32), pb.DTYPE_FLOAT32),
            draft_token_ids=tensor(np.zeros(k, np.int32), pb.DTYPE_INT32),
            draft_lengths=[k],
        )
        decode(decoder, step)
    forms = decoder._repeats._forms
    assert len(forms) == repeats._ENTRIES
    for form in forms.values():
        held = form.checked.step
        assert held.target_logits.untyped_storage().nbytes() == 0
        assert held.draft_token_ids.untyped_storage().nbytes() == 0


def test_tensors_of_two_steps_share_nothing() -> None:
    decoder, rng = StepDecoder(Limits()), np.random.default_rng(2)
    first, second = good_step(), good_step()
    other_numbers(second, rng)
    decode(decoder, good_step())
    one = decode(decoder, first).step.target_logits
    before = one.clone()
    two = decode(decoder, second).step.target_logits
    gc.collect()
    assert torch.equal(one, before)
    assert not torch.equal(one, two)
