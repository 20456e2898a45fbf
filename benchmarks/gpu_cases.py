"""Steps of real size on a device: drawn there, at a stated acceptance, and enough of them to outgrow its cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from sampler_kernels.batch import Batch, MethodCode
from sampler_kernels.rows import RowTable

TEMPERATURE = 0.7


@dataclass(frozen=True)
class Shape:
    """B requests of k draft tokens over V ids."""

    requests: int
    drafts: int
    vocab: int

    @property
    def row_bytes(self) -> int:
        """Of one row of 16-bit logits."""
        return 2 * self.vocab

    @property
    def num_bytes(self) -> int:
        """Of all target and draft rows."""
        return self.requests * (2 * self.drafts + 1) * self.row_bytes

    def __str__(self) -> str:
        return f"B={self.requests} k={self.drafts}"


def flat(rows: int, vocab: int, generator: torch.Generator) -> Tensor:
    """[rows, vocab] float32: normal logits; at T = 0.7 no token has more than a few thousandths."""
    return torch.randn((rows, vocab), generator=generator, device=generator.device)


def peaked(rows: int, vocab: int, generator: torch.Generator) -> Tensor:
    """[rows, vocab] float32: a power law over shuffled ids, and noise; at T = 0.7 the first token has about 0.6."""
    place = torch.rand((rows, vocab), generator=generator, device=generator.device).mul_(vocab)
    return place.add_(1).log_().mul_(-1.5).add_(flat(rows, vocab, generator).mul_(0.3))


KINDS = {"flat": flat, "peaked": peaked}


def overlap(target: Tensor, draft: Tensor) -> float:
    """Mean acceptance of drafts drawn from q: the sum of min(p, q)."""
    p, q = ((x.float() / TEMPERATURE).softmax(1) for x in (target, draft))
    return torch.minimum(p, q).sum(1).mean().item()


def noise_for(kind: str, acceptance: float, vocab: int, device: torch.device) -> float:
    """How much normal noise on the target's logits makes a draft that is accepted this often, by halving."""
    generator = torch.Generator(device).manual_seed(1)
    target, noise = KINDS[kind](16, vocab, generator), flat(16, vocab, generator)
    low, high = 0.0, 16.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if overlap(target, target + middle * noise) > acceptance else (low, middle)
    return low


def step(shape: Shape, kind: str, noise: float, seed: int, device: torch.device) -> Batch:
    """One batch, bf16, temperature 0.7, drafts drawn from their logits, everything on the device."""
    generator = torch.Generator(device).manual_seed(seed)
    b, k, vocab = shape.requests, shape.drafts, shape.vocab
    target = torch.empty((b, k + 1, vocab), dtype=torch.bfloat16, device=device)
    draft = torch.empty((b, k, vocab), dtype=torch.bfloat16, device=device)
    ids = torch.empty((b, k), dtype=torch.int32, device=device)
    for r in range(b):  # one request at a time: the float32 copies stay small
        rows = KINDS[kind](k + 1, vocab, generator)
        target[r] = rows
        draft[r] = rows[:k] + noise * flat(k, vocab, generator)
        # A draw from q by the largest exponential race: multinomial would want at most 2^24 categories and a copy.
        race = torch.empty((k, vocab), device=device).exponential_(generator=generator).log_().neg_()
        ids[r] = (draft[r].float() / TEMPERATURE + race).argmax(1)
    lengths = torch.full((b,), k, dtype=torch.int32, device=device)
    temperature = torch.full((b,), TEMPERATURE, dtype=torch.float64, device=device)
    return Batch(
        vocab_size=vocab,
        target=table(target.view(-1, vocab)),
        draft=table(draft.view(-1, vocab)),
        draft_lengths=lengths,
        cu_num_logits=torch.arange(b + 1, dtype=torch.int32, device=device) * (k + 1),
        cu_drafts=torch.arange(b + 1, dtype=torch.int32, device=device) * k,
        draft_token_ids=ids.view(-1),
        draft_row=torch.arange(b * k, dtype=torch.int32, device=device),
        inverse_maps=(),
        draft_map=torch.full((b * k,), -1, dtype=torch.int32, device=device),
        method=torch.full_like(lengths, int(MethodCode.STANDARD)),
        temperature=temperature,
        draft_temperature=temperature.clone(),
        seed=torch.arange(b, device=device) + 1000 * seed,
        position=torch.arange(b, device=device) * 17,
    )


def table(rows: Tensor) -> RowTable:
    """A matrix as a row table with its addresses on the device."""
    count = len(rows)
    made = RowTable((rows,), np.zeros(count, np.int32), np.arange(count))
    return replace(made, uploaded=made.pointers(rows.device))
