"""Step -> Batch: a checked step becomes columns and row tables on the device that runs it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.batch import Batch, MethodCode
from sampler_kernels.columns import upload
from sampler_kernels.host import HostColumns
from sampler_kernels.planning.draft_rows import DraftRows, draft_rows, mark_invalid
from sampler_kernels.planning.methods import cut_columns, lossy_columns, method_columns
from sampler_kernels.planning.processing import processing_plan
from sampler_kernels.planning.supplied import draft_sums, supplied_columns, target_sums
from sampler_kernels.planning.wishes import Resolved, Wishes, resolve
from sampler_kernels.rows import RowPointers, RowTable
from sampler_kernels.step import Step

GIVEN_SEED_BITS = 53
"""Width of a seed that a request is given, so that it survives a client whose numbers are doubles."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A batch, and what the rest of the step needs beside it.

    Attributes:
        batch: On the device.
        target_temperature: [N] float64 on the device, of each target row.
        draft_temperature: [len(batch.draft)] float64 on the device, of each draft row that is read.
        chosen_ids: [N, c] int32 on the device, ids whose values are wanted, -1 for none; None where c is 0.
        raw_rows: [N] bool on the device, rows of which raw numbers are wanted.
        processed_rows: [N] bool on the device, rows of which processed numbers are wanted.
        wishes: What to report.
        cu_num_logits: [B+1] int64 on the host.
        seeds: [B] uint64 on the host, as used.
        temperature: [B] float64 on the host, what processed logits are divided by: 1 at temperature 0.
    """

    batch: Batch
    target_temperature: Tensor
    draft_temperature: Tensor
    chosen_ids: Tensor | None
    raw_rows: Tensor
    processed_rows: Tensor
    wishes: Wishes
    cu_num_logits: NDArray[np.int64]
    seeds: NDArray[np.uint64]
    temperature: NDArray[np.float64]


def plan(step: Step, host: HostColumns, device: torch.device) -> Plan:
    """Bring a step to the device: its columns in one copy, its tensors only where they lie elsewhere.

    Args:
        step: A step that ``checks`` let pass.
        host: The columns that ``checks`` read out of it.
        device: Where it runs.
    """
    sets = [resolve(params) for params in step.params]
    wishes = Wishes.of(sets, host.params_index)
    vocab_size = step.target_logits.shape[1]
    target = _target_table(step.target_logits, device)
    reads = np.array([one.reads_draft for one in sets])[host.params_index]
    draft = draft_rows(step.draft_blocks, host, reads, vocab_size, device)
    seeds = _seeds(host)
    processed = processing_plan(step, host)
    arrays = _columns(host, sets, draft, wishes, seeds) | _ids(step, draft) | processed.columns
    arrays |= method_columns(step.params, host) | supplied_columns(step, host, draft)
    if device.type != "cpu":
        arrays |= _pointers("target", target) | _pointers("draft", draft.table)
    columns = upload(arrays, device)
    batch = Batch(
        vocab_size=vocab_size,
        target=replace(
            _with_pointers("target", target, columns),
            processing=processed.processing(columns, device),
            supplied=target_sums(step, columns, device),
        ),
        draft=replace(_with_pointers("draft", draft.table, columns), supplied=draft_sums(step, columns, device)),
        draft_lengths=columns["draft_lengths"],
        cu_num_logits=columns["cu_num_logits"],
        cu_drafts=columns["cu_drafts"],
        draft_token_ids=_draft_token_ids(step, columns, draft, device),
        draft_row=columns["draft_row"],
        inverse_maps=draft.inverse_maps,
        draft_map=columns["draft_map"],
        method=columns["method"],
        temperature=columns["temperature"],
        draft_temperature=columns["draft_temperature"],
        seed=columns["seed"],
        position=columns["position"],
        edit_sources=processed.sources(columns, device),
        lossy=lossy_columns(columns),
        cuts=cut_columns(columns),
        wants_acceptance=columns.get("wants_acceptance"),
        methods=frozenset(MethodCode(code) for code in set(arrays["method"].tolist())),
    )
    return Plan(
        batch=batch,
        target_temperature=columns["target_row_temperature"],
        draft_temperature=columns["draft_row_temperature"],
        chosen_ids=columns.get("chosen_ids"),
        raw_rows=columns["raw_rows"],
        processed_rows=columns["processed_rows"],
        wishes=wishes,
        cu_num_logits=host.cu_num_logits,
        seeds=seeds,
        temperature=np.array([one.temperature or 1.0 for one in sets], np.float64)[host.params_index],
    )


def _target_table(logits: Tensor, device: torch.device) -> RowTable:
    rows = logits.shape[0]
    return RowTable((logits.detach().to(device),), np.zeros(rows, np.int32), np.arange(rows, dtype=np.int64))


def _seeds(host: HostColumns) -> NDArray[np.uint64]:
    """[B] uint64: the seeds as given, with a fresh one for each request that has none."""
    missing = int((~host.has_seed).sum())
    if not missing:
        return host.seeds
    seeds = host.seeds.copy()
    fresh = np.frombuffer(secrets.token_bytes(8 * missing), np.uint64)
    seeds[~host.has_seed] = fresh >> np.uint64(64 - GIVEN_SEED_BITS)
    return seeds


def _columns(
    host: HostColumns, sets: list[Resolved], draft: DraftRows, wishes: Wishes, seeds: NDArray[np.uint64]
) -> dict[str, NDArray[Any]]:
    index, rows_of = host.params_index, host.draft_lengths + 1
    temperature = np.array([one.temperature for one in sets], np.float64)[index]
    draft_temperature = np.array([one.draft_temperature for one in sets], np.float64)[index]
    arrays: dict[str, NDArray[Any]] = {
        "draft_lengths": host.draft_lengths.astype(np.int32),
        "cu_num_logits": host.cu_num_logits.astype(np.int32),
        "cu_drafts": host.cu_drafts.astype(np.int32),
        "draft_row": draft.draft_row,
        "draft_map": draft.draft_map,
        "method": np.array([one.method for one in sets], np.int32)[index],
        "temperature": temperature,
        "draft_temperature": draft_temperature,
        "seed": seeds.view(np.int64),
        "position": host.positions.view(np.int64),
        "target_row_temperature": np.repeat(temperature, rows_of),
        "draft_row_temperature": draft_temperature[draft.request],
        "raw_rows": np.repeat(wishes.view(raw=True), rows_of),
        "processed_rows": np.repeat(wishes.view(raw=False), rows_of),
    }
    if wishes.acceptance.any():
        arrays["wants_acceptance"] = wishes.acceptance
    if wishes.chosen_ids.shape[1]:
        arrays["chosen_ids"] = np.repeat(wishes.chosen_ids, rows_of, axis=0)
    return arrays


def _ids(step: Step, draft: DraftRows) -> dict[str, NDArray[Any]]:
    """Draft ids of the host, which are checked, or what it takes to check those of a device where they lie."""
    if step.draft_token_ids.device.type == "cpu":
        return {"draft_token_ids": step.draft_token_ids.numpy().astype(np.int32)}
    return {"id_limit": draft.id_limit}


def _draft_token_ids(step: Step, columns: Mapping[str, Tensor], draft: DraftRows, device: torch.device) -> Tensor:
    if "draft_token_ids" in columns:
        return columns["draft_token_ids"]
    ids = step.draft_token_ids.to(device)
    return mark_invalid(ids, columns["id_limit"], columns["draft_map"], draft.inverse_maps)


def _pointers(side: str, table: RowTable) -> dict[str, NDArray[Any]]:
    return {f"{side}_address": table.addresses(), f"{side}_width": table.widths()}


def _with_pointers(side: str, table: RowTable, columns: Mapping[str, Tensor]) -> RowTable:
    if f"{side}_address" not in columns:
        return table
    return replace(table, uploaded=RowPointers(columns[f"{side}_address"], columns[f"{side}_width"]))
