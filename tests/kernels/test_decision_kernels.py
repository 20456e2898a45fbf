"""Rejection, draw and flatten: each kernel against its reference, and a request against itself in other company."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch

pytest.importorskip("triton")

from sampler_kernels.batch import Batch
from sampler_kernels.draw import kernel as draw_kernel
from sampler_kernels.draw import reference as draw_reference
from sampler_kernels.flatten import kernel as flatten_kernel
from sampler_kernels.flatten import reference as flatten_reference
from sampler_kernels.outcome import Decision, DrawKind, RowStats
from sampler_kernels.rejection import kernel as rejection_kernel
from sampler_kernels.rejection import reference as rejection_reference
from sampler_kernels.result import Status
from sampler_kernels.stats.kernel import stats_of_both
from sampler_kernels.stats.reference import LazyRowStats
from tests.kernels.kernel_cases import DEVICE, SEEDS, batches, moved, on_device, temperatures
from tests.kernels.steps import Request, make_batch


def kernel_stats(batch: Batch, here: Batch) -> tuple[RowStats, RowStats]:
    of_target, of_draft = temperatures(batch)
    return stats_of_both(here.target, of_target.to(DEVICE), here.draft, of_draft.to(DEVICE), raw=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_operation_agrees_with_its_reference(seed: int) -> None:
    for batch in batches(seed):
        here = on_device(batch)
        target, draft = kernel_stats(batch, here)
        truth = rejection_reference.rejection(batch, moved(target, "cpu"), moved(draft, "cpu"))
        mine = rejection_kernel.rejection(here, target, draft)
        for f in fields(Decision):
            numbers, expected = getattr(mine, f.name), getattr(truth, f.name)
            assert numbers is expected is None or torch.equal(numbers.cpu(), expected), f.name

        tokens = draw_reference.draw(batch, moved(target, "cpu"), moved(draft, "cpu"), truth)
        assert torch.equal(draw_kernel.draw(here, target, draft, moved(truth, DEVICE)).cpu(), tokens)
        emitted = flatten_reference.flatten(batch, truth, tokens)
        assert torch.equal(flatten_kernel.flatten(here, moved(truth, DEVICE), tokens.to(DEVICE)).cpu(), emitted)
        both = draw_kernel.draw_and_flatten(here, target, draft, moved(truth, DEVICE))
        assert torch.equal(both[0].cpu(), tokens)
        assert torch.equal(both[1].cpu(), emitted)


def test_the_random_batches_reach_every_branch() -> None:
    """OK by argmax, from p, from a residual beside a row, a mapped row and a point mass; bad logits; bad ids."""
    seen: set[tuple[str, ...]] = set()
    for batch in (batch for seed in SEEDS for batch in batches(seed)):
        of_target, of_draft = temperatures(batch)
        decision = rejection_reference.rejection(
            batch, LazyRowStats(batch.target, of_target, raw=False), LazyRowStats(batch.draft, of_draft, raw=False)
        )
        for r in range(len(batch.draft_lengths)):
            kind = DrawKind(int(decision.draw_kind[r])).name
            if kind == "RESIDUAL":
                place = int(batch.cu_drafts[r] + decision.num_accepted[r])
                kind += " row" if batch.draft_row[place] >= 0 else " point"
                kind += " mapped" if batch.draft_map[place] >= 0 else ""
            seen.add((Status(int(decision.status[r])).name, kind))
    assert seen == {
        ("OK", "ARGMAX"),
        ("OK", "TARGET"),
        ("OK", "RESIDUAL row"),
        ("OK", "RESIDUAL row mapped"),
        ("OK", "RESIDUAL point"),
        ("INVALID_LOGITS", "NOTHING"),
        ("INVALID_DRAFT_TOKEN", "NOTHING"),
    }


def residual_request(vocab: int, seed: int, dtype: torch.dtype) -> Request:
    """A request that will redraw beside a draft row: the drafts are what the target likes least."""
    target = torch.randn((3, vocab), generator=torch.Generator().manual_seed(seed)).mul_(3).to(dtype)
    draft = -target[:2]
    return Request(target, draft.argmax(1).tolist(), draft, None, 0.9, seed=seed)


@pytest.mark.parametrize("vocab", [4096, 8201])
def test_a_request_emits_the_same_in_any_company(vocab: int) -> None:
    """Neighbours change the variant of the kernel (a map, a wider draft vocabulary) and a row's alignment."""
    one = residual_request(vocab, 5, torch.bfloat16)
    id_map = torch.randperm(vocab, generator=torch.Generator().manual_seed(1))[: vocab // 2].numpy()
    mapped = Request(one.target, id_map[[3, 4]].tolist(), torch.randn(2, vocab // 2).bfloat16(), id_map, 1.1, seed=9)
    wide = Request(one.target, [1, 2], torch.randn(2, vocab + 5000).bfloat16(), None, 1.0, seed=10)
    point = Request(one.target, [7, 7], None, None, 1.0, seed=11)
    outcomes = []
    for company in ([one], [point, one], [mapped, wide, one]):
        batch = make_batch(company)
        here = on_device(batch)
        target, draft = kernel_stats(batch, here)
        decision = rejection_kernel.rejection(here, target, draft)
        tokens, emitted = draw_kernel.draw_and_flatten(here, target, draft, decision)
        outcomes.append((decision.num_accepted[-1].item(), tokens[-1].item(), emitted[-3:].tolist()))
    assert outcomes[0] == outcomes[1] == outcomes[2]
