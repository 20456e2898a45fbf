"""A Step of the wire as a Step of the core, every rule checked that the core cannot see any more afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from sampler_client.v1 import sampler_pb2 as pb
from sampler_kernels import DraftBlock, IdMap, SamplingParams, Step, StepRefused
from sampler_kernels.checks import checked
from sampler_kernels.host import HostColumns
from sampler_kernels.refusal import Reason as CoreReason
from sampler_service.codec.columns import check_size, column
from sampler_service.codec.extras import extras_of
from sampler_service.codec.kept import Changes, KeptState
from sampler_service.codec.params import PARAMS_FIELDS, ParamsDecoder
from sampler_service.codec.tensors import IDS, LOGITS, read_tensor
from sampler_service.codec.unbuilt import unbuilt
from sampler_service.errors import Reason, Refusal, internal, of_core, refuse
from sampler_service.limits import Limits
from sampler_service.steps import CheckedStep

MAX_FORGET: Final = 1 << 16
"""Ids of one kind that a step may forget: more than can be kept."""

_PER_REQUEST: Final = frozenset(
    ("draft_lengths", "draft_block_index", "params_index", "seeds", "positions", "num_output_tokens")
)


@dataclass
class _Draft:
    """A step in the making: what has been read, and what of it this server has not built."""

    changes: Changes
    not_built: Refusal | None = None

    def miss(self, what: str, field: str) -> None:
        """Note something legal that cannot be done; the first one is what the client hears of."""
        self.not_built = self.not_built or refuse(
            CoreReason.NOT_IMPLEMENTED, f"{field}: {what} not built yet", field=field
        )


class StepDecoder:
    """Reads the steps of all calls.

    Args:
        limits: What a step may hold.
        backend: Who will run the steps, and may lack what others have.
    """

    def __init__(self, limits: Limits, backend: str = "cpu") -> None:
        self._limits = limits
        self._backend = backend
        self._params = ParamsDecoder(limits)

    def decode(self, message: pb.Step, kept: KeptState | None) -> CheckedStep:
        """The step of a message, checked whole; then, and only then, what it keeps is kept.

        Args:
            message: As received. Tensors of the result share its bytes.
            kept: The state of the stream; None for a call that has nowhere to keep anything.

        Raises:
            Refusal: Mistakes come before what is not built: NOT_IMPLEMENTED says that the step is otherwise right.
        """
        draft = _Draft(Changes())
        step = self._base(message, kept, draft)
        columns = self._checked(step, message, draft)
        additions = extras_of(message, step, self._limits, draft.miss)
        if additions:
            step = replace(step, **additions)
            columns = self._checked(step, message, draft)
        unbuilt(message, len(message.draft_lengths), draft.miss)
        if draft.not_built is not None or columns is None:
            raise draft.not_built or internal()
        if draft.changes and kept is not None:
            kept.apply(draft.changes)
        return CheckedStep(step, columns)

    def _base(self, message: pb.Step, kept: KeptState | None, draft: _Draft) -> Step:
        """What nearly every step has: rows, drafts, parameters and columns."""
        batch = len(message.draft_lengths)
        check_size(batch, "draft_lengths", self._limits.max_batch_size)
        if not message.HasField("target_logits"):
            what = "target_logits is missing; a step needs a row of target logits for each draft token and one more"
            raise refuse(Reason.FIELD_REQUIRED, what, field="target_logits")
        widest = self._limits.max_vocab_size
        target = read_tensor(message.target_logits, "target_logits", LOGITS, (2,), max_columns=widest)
        if target.in_region:
            draft.miss("tensors in registered regions are", "target_logits.region")
        params, index = self._params_of(message, kept, draft, batch)
        seeds, positions = _randomness(message, batch)
        check_size(len(message.draft_blocks), "draft_blocks", self._limits.max_batch_size)
        return Step(
            target_logits=target.data,
            draft_token_ids=_draft_token_ids(message, draft),
            draft_lengths=list(message.draft_lengths),
            draft_blocks=[
                self._block(message, b, target.data.shape[1], kept, draft) for b in range(len(message.draft_blocks))
            ],
            draft_block_index=column(message.draft_block_index, "draft_block_index", batch),
            params=params,
            params_index=index,
            seeds=seeds,
            positions=positions,
        )

    def _params_of(
        self, message: pb.Step, kept: KeptState | None, draft: _Draft, batch: int
    ) -> tuple[Sequence[SamplingParams], list[int] | None]:
        """Sets sent and sets kept in one table, and which one each request uses."""
        index = column(message.params_index, "params_index", batch)
        for name, entries in (("params", message.params), ("kept_params", message.kept_params)):
            check_size(len(entries), name, self._limits.max_batch_size)
        params = [self._one_set(one, i, index) for i, one in enumerate(message.params)]
        if message.keep_params_as:
            keys = message.keep_params_as
            if len(keys) != len(params):
                what = f"keep_params_as has {len(keys)} entries; it must have {len(params)}, one for each of params"
                raise refuse(CoreReason.SHAPE_MISMATCH, what, field="keep_params_as")
            draft.changes.params = {key: one for key, one in zip(keys, params, strict=True) if key}
        if message.HasField("forget"):
            for name in ("params", "draft_id_maps", "histories"):
                check_size(len(getattr(message.forget, name)), f"forget.{name}", MAX_FORGET)
            draft.changes.forget = message.forget
        if message.kept_params:
            names = [(key, f"kept_params[{i}]") for i, key in enumerate(message.kept_params)]
            params += [_kept(kept, where, message).params(key, where) for key, where in names]
        if draft.changes:
            _kept(kept, "keep_params_as" if draft.changes.params else "forget", message).check_room(draft.changes)
        return params or (SamplingParams(),), index

    def _one_set(self, message: pb.SamplingParams, i: int, index: list[int] | None) -> SamplingParams:
        try:
            return self._params.decode(message, f"params[{i}]")
        except Refusal as refusal:
            raise _of_first_user(refusal, i, index) from None

    def _block(self, message: pb.Step, b: int, vocab_size: int, kept: KeptState | None, draft: _Draft) -> DraftBlock:
        block, where = message.draft_blocks[b], f"draft_blocks[{b}]"
        if not block.HasField("logits"):
            what = f"{where}.logits is missing; leave the block out for drafts without logits"
            raise refuse(Reason.FIELD_REQUIRED, what, field=f"{where}.logits")
        widest = self._limits.max_vocab_size
        logits = read_tensor(block.logits, f"{where}.logits", LOGITS, (2,), max_columns=widest)
        if logits.in_region:
            draft.miss("tensors in registered regions are", f"{where}.logits.region")
        return DraftBlock(logits.data, self._map(message, b, vocab_size, kept, draft))

    def _map(self, message: pb.Step, b: int, vocab_size: int, kept: KeptState | None, draft: _Draft) -> IdMap | None:
        block, where = message.draft_blocks[b], f"draft_blocks[{b}]"
        field = f"{where}.draft_id_map"
        if block.kept_draft_id_map:
            if block.HasField("draft_id_map"):
                what = f"{where} has a draft_id_map and names a kept one; at most one of them may be given"
                raise refuse(CoreReason.PARAMETER_CONFLICT, what, field=field)
            field = f"{where}.kept_draft_id_map"
            return _kept(kept, field, message).draft_id_map(block.kept_draft_id_map, field)
        if not block.HasField("draft_id_map"):
            if block.keep_draft_id_map_as:
                what = f"{where}.keep_draft_id_map_as is set, and there is no draft_id_map to keep"
                raise refuse(Reason.FIELD_REQUIRED, what, field=field)
            return None
        ids = read_tensor(block.draft_id_map, field, IDS, (1,))
        if ids.in_region:
            draft.miss("tensors in registered regions are", f"{field}.region")
            # Distinct ids stand in for those that cannot be read, so that all other checks go on.
            return IdMap(torch.arange(min(len(ids.data), vocab_size)), vocab_size)
        id_map = IdMap(ids.data, vocab_size)
        if block.keep_draft_id_map_as:
            # The bytes belong to a message with all its logits: a map that stays must not keep those.
            id_map = IdMap(ids.data.clone(), vocab_size)
            draft.changes.draft_id_maps[block.keep_draft_id_map_as] = id_map
            _kept(kept, f"{where}.keep_draft_id_map_as", message).check_room(draft.changes)
        return id_map

    def _checked(self, step: Step, message: pb.Step, draft: _Draft) -> HostColumns | None:
        """The columns of a step that is right; None, with a note, for one that is right and not built."""
        try:
            return checked(step, self._backend)
        except StepRefused as refused:
            refusal = located(refused, message)
            if refused.reason is not CoreReason.NOT_IMPLEMENTED:
                raise refusal from None
            draft.not_built = draft.not_built or refusal
            return None


def located(refused: StepRefused, message: pb.Step) -> Refusal:
    """The core's refusal with the path of its field in the message that the step came from."""
    refusal = of_core(refused)
    if refusal.field is None or refusal.request is None:
        return refusal
    if refusal.field in PARAMS_FIELDS:
        used = message.params_index[refusal.request] if message.params_index else 0
        sent = len(message.params)
        table = f"params[{used}]" if used < sent or not message.kept_params else f"kept_params[{used - sent}]"
        refusal.field = f"{table}.{refusal.field}"
    elif refusal.field in _PER_REQUEST:
        refusal.field = f"{refusal.field}[{refusal.request}]"
    return refusal


def _draft_token_ids(message: pb.Step, draft: _Draft) -> torch.Tensor:
    if not message.HasField("draft_token_ids"):
        return torch.empty(0, dtype=torch.int32)
    ids = read_tensor(message.draft_token_ids, "draft_token_ids", IDS, (1,))
    if ids.in_region:
        draft.miss("tensors in registered regions are", "draft_token_ids.region")
    return ids.data


def _randomness(message: pb.Step, batch: int) -> tuple[list[int | None] | None, list[int] | None]:
    """Seeds and positions; a seed without a position would serve every step of its sequence."""
    given = column(message.seeds, "seeds", batch)
    seeds: list[int | None] | None = None if given is None else [*given]
    has_seed = column(message.has_seed, "has_seed", batch)
    positions = column(message.positions, "positions", batch)
    if has_seed is not None and seeds is not None:
        seeds = [seed if has else None for seed, has in zip(seeds, has_seed, strict=True)]
    elif has_seed is not None and True in has_seed:
        request = has_seed.index(True)
        what = f"request {request}: has_seed is true and seeds is empty; send the seed, or leave has_seed out"
        raise Refusal(Reason.FIELD_REQUIRED.value, what, "seeds", request)
    if seeds is not None and positions is None:
        for request, seed in enumerate(seeds):
            if seed is not None:
                what = f"request {request}: seeds gives a seed and positions is empty; a seed needs its position"
                raise Refusal(Reason.SEED_WITHOUT_POSITION.value, what, f"seeds[{request}]", request)
    return seeds, positions


def _kept(kept: KeptState | None, where: str, message: pb.Step) -> KeptState:
    """The state that the step's ids refer to: the session's if it names one, else the stream's."""
    if message.session_id:
        raise refuse(CoreReason.NOT_IMPLEMENTED, f"{where}: sessions are not built yet", field="session_id")
    if kept is None:
        what = f"{where}: a unary step has no stream to keep anything in; send what it needs, or use VerifyStream"
        raise refuse(Reason.KEPT_STATE_NEEDS_STREAM, what, field=where)
    return kept


def _of_first_user(refusal: Refusal, params: int, index: list[int] | None) -> Refusal:
    """Say of which request the mistake in a parameter set is."""
    users = [0] if index is None and params == 0 else [r for r, used in enumerate(index or ()) if used == params]
    if users:
        refusal.request = users[0]
        refusal.message = f"request {users[0]}: {refusal.message}"
    return refusal
