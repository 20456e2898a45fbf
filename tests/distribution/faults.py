"""The faults themselves: classic mistakes of a verification step, one function for each that is not a mere counter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.backends import Backend
from sampler_kernels.batch import Batch
from sampler_kernels.outcome import Decision, DrawKind
from sampler_kernels.philox.reference import Purpose
from sampler_kernels.philox.reference import uniform as true_uniform
from sampler_kernels.planning.plan import Plan
from tests.distribution.planting import Bits

LOW_WORD = 0xFFFFFFFF


def unscaled_draft_logits(plan: Plan) -> Plan:
    """Takes for q the softmax of the draft logits as they came."""
    return replace(
        plan,
        batch=replace(plan.batch, draft_temperature=torch.ones_like(plan.batch.draft_temperature)),
        draft_temperature=torch.ones_like(plan.draft_temperature),
    )


def draft_temperature_ignored(plan: Plan) -> Plan:
    """Takes q at the request's temperature, whatever the draft's own."""
    batch = plan.batch
    at_each_draft = batch.temperature.repeat_interleave(batch.draft_lengths.long())
    return replace(
        plan,
        batch=replace(batch, draft_temperature=batch.temperature),
        draft_temperature=at_each_draft[batch.draft_row >= 0],
    )


def map_ignored(plan: Plan) -> Plan:
    """Draft columns are taken for target ids."""
    return replace(plan, batch=replace(plan.batch, draft_map=torch.full_like(plan.batch.draft_map, -1)))


def position_stays_at_accept(seed: Bits, position: Bits, purpose: Purpose, s: Bits | int) -> NDArray[np.float64]:
    """Every accept test of a step stands at the position of row 0."""
    return true_uniform(seed, position - s, purpose, s)


def position_stays_at_draw(batch: Batch, decision: Decision) -> tuple[Batch, Decision]:
    """The draw stands at the position of row 0."""
    return replace(batch, position=batch.position - decision.num_accepted), decision


def residual_without_draft_token_only(batch: Batch, decision: Decision) -> tuple[Batch, Decision]:
    """Takes p less the rejected token, also beside a draft row, where it has to be max(p - q, 0)."""
    return replace(batch, draft_row=torch.full_like(batch.draft_row, -1)), decision


def redrawn_from_p(batch: Batch, decision: Decision) -> tuple[Batch, Decision]:
    """A rejected position is drawn from p, as if no draft token had been tried there."""
    return batch, replace(decision, draw_kind=_exchanged(decision, DrawKind.RESIDUAL, DrawKind.TARGET))


def placeholder_redrawn_from_residual(batch: Batch, decision: Decision) -> tuple[Batch, Decision]:
    """A slot in which nothing was drawn is treated as a rejected token."""
    here = decision.num_accepted < batch.draft_lengths
    kind = _exchanged(decision, DrawKind.TARGET, DrawKind.RESIDUAL)
    return batch, replace(decision, draw_kind=torch.where(here, kind, decision.draw_kind))


def bonus_from_the_row_before(batch: Batch, decision: Decision) -> tuple[Batch, Decision]:
    """Where all draft tokens stood the last of their rows is drawn from once more."""
    at_bonus = (decision.num_accepted == batch.draft_lengths) & (batch.draft_lengths > 0)
    return (
        replace(batch, position=batch.position + at_bonus),
        replace(decision, num_accepted=decision.num_accepted - at_bonus.int()),
    )


def _exchanged(decision: Decision, kind: DrawKind, other: DrawKind) -> Tensor:
    return torch.where(decision.draw_kind == kind, int(other), decision.draw_kind)


def mass_subtracted(backend: Backend) -> Backend:
    """Beside a point mass the mass of what is left is that of the row less the token's, in fp32."""

    def draw(batch: Batch, target_stats: Any, draft_stats: Any, decision: Decision) -> Tensor:  # noqa: ANN401
        tokens = backend.draw(batch, target_stats, draft_stats, decision)
        for r in (decision.draw_kind == DrawKind.RESIDUAL).nonzero().squeeze(1).tolist():
            t = int(decision.num_accepted[r])
            place = int(batch.cu_drafts[r]) + t
            if batch.draft_row[place] < 0:
                tokens[r] = _from_what_is_left(batch, r, t, int(batch.draft_token_ids[place]))
        return tokens

    return replace(backend, draw=draw)


def _from_what_is_left(batch: Batch, r: int, t: int, rejected: int) -> int:
    row = batch.target.row(int(batch.cu_num_logits[r]) + t).float()
    masses = ((row - row.max()) / batch.temperature[r].float()).exp()
    left = masses.sum() - masses[rejected]
    masses[rejected] = 0.0
    seed, position = batch.seed[r : r + 1].numpy(), batch.position[r : r + 1].numpy()
    u = float(true_uniform(seed, position + t, Purpose.DRAW, 0)[0])
    above = torch.searchsorted(masses.double().cumsum(0), u * float(left), right=True)
    return min(int(above), len(row) - 1)


def rejection_at_temperature_1(backend: Backend) -> Backend:
    """p(x) of the accept test is taken from the raw row; the draws are right."""

    def rejection(batch: Batch, target_stats: Any, draft_stats: Any) -> Decision:  # noqa: ANN401, ARG001
        warm = torch.where(batch.temperature > 0, 1.0, 0.0)
        row_temperature = warm.repeat_interleave(batch.draft_lengths.long() + 1)
        stats = backend.stats(batch.target, row_temperature, raw=False)
        return backend.rejection(replace(batch, temperature=warm), stats, draft_stats)

    return replace(backend, rejection=rejection)


def highest_id_at_ties(plan: Plan) -> Plan:
    """Rows, and with them the ids of drafts, are read from the last id to the first."""
    batch = plan.batch
    ids = batch.draft_token_ids
    blocks = tuple(block.flip(1) for block in batch.target.blocks)
    return replace(
        plan,
        batch=replace(
            batch,
            target=replace(batch.target, blocks=blocks),
            draft_token_ids=torch.where(ids >= 0, batch.vocab_size - 1 - ids, ids),
        ),
    )


def ids_turned_back(backend: Backend) -> Backend:
    """What was read from the last id is named from the first again."""

    def flatten(batch: Batch, decision: Decision, tokens: Tensor) -> Tensor:
        emitted = backend.flatten(batch, decision, tokens)
        return torch.where(emitted >= 0, batch.vocab_size - 1 - emitted, emitted)

    return replace(backend, flatten=flatten)


def accepts_at_equality(wave: Any) -> Any:  # noqa: ANN401
    """``<=`` in the accept test."""
    return wave.u * wave.q <= wave.p
