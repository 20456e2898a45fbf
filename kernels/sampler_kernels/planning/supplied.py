"""Step -> SuppliedSums: which rows come with a log-sum-exp, on the target side and on the draft side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.host import HostColumns
from sampler_kernels.planning.draft_rows import DraftRows
from sampler_kernels.rows import SuppliedSums
from sampler_kernels.step import Step


def supplied_columns(step: Step, host: HostColumns, draft: DraftRows) -> dict[str, NDArray[Any]]:
    """What there is to upload, by name; nothing for a step that supplies nothing."""
    columns: dict[str, NDArray[Any]] = {}
    target, drafted = host.has_target_sums(step), host.has_draft_sums(step)
    if target.any():
        columns["target_sum_given"] = np.repeat(target, host.draft_lengths + 1)
    if drafted.any():
        # Of all draft rows in request order, those that some rule reads are the rows of the draft table.
        has_logits = host.block_index[host.request_of_drafts()] >= 0
        columns["draft_sum_index"] = (np.cumsum(has_logits) - 1)[draft.draft_row >= 0]
        columns["draft_sum_given"] = drafted[draft.request]
    return columns


def target_sums(step: Step, columns: Mapping[str, Tensor], device: torch.device) -> SuppliedSums | None:
    """Of the target rows; ``columns`` as uploaded."""
    if step.target_logsumexp is None or "target_sum_given" not in columns:
        return None
    given, sums = columns["target_sum_given"], step.target_logsumexp.detach().to(device)
    return SuppliedSums(log_sum_exp=sums, given=given, reported_ids=columns.get("chosen_ids"))


def draft_sums(step: Step, columns: Mapping[str, Tensor], device: torch.device) -> SuppliedSums | None:
    """Of the draft rows that some rule reads; ``columns`` as uploaded."""
    if step.draft_logsumexp is None or "draft_sum_given" not in columns:
        return None
    sums = step.draft_logsumexp.detach().to(device)[columns["draft_sum_index"]]
    return SuppliedSums(log_sum_exp=sums, given=columns["draft_sum_given"])
