"""Random small batches that try everything a kernel branches on, and the device that kernels run on here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from sampler_kernels.batch import INVALID_TOKEN, Batch
from sampler_kernels.rows import RowTable
from sampler_kernels.stats.temperatures import draft_temperature, target_temperature
from tests.kernels.steps import Request, make_batch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""Compiled where there is a GPU; else interpreted, which conftest asked for before triton was imported."""

SEEDS = range(60 if torch.cuda.is_available() else 8)
"""Of random batches. The interpreter takes seconds for what a device does in microseconds."""

VOCABULARIES = (1, 2, 3, 16, 127, 128, 130, 1000, 4095, 4096, 4097, 8200)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


Parts = TypeVar("Parts")


def moved(parts: Parts, device: torch.device | str) -> Parts:
    """A dataclass of tensors, some of them absent, on a device."""
    there: Any = {f.name: getattr(parts, f.name) for f in fields(cast(Any, parts))}
    return type(parts)(**{name: None if part is None else part.to(device) for name, part in there.items()})


def on_device(batch: Batch) -> Batch:
    """The same batch where kernels run; references take the one it was made from."""
    moved = {f.name: getattr(batch, f.name) for f in fields(batch)}
    moved = {name: value.to(DEVICE) if isinstance(value, Tensor) else value for name, value in moved.items()}
    for name in ("target", "draft"):
        moved[name] = table_on_device(moved[name])
    moved["inverse_maps"] = tuple(table.to(DEVICE) for table in batch.inverse_maps)
    return Batch(**moved)


def table_on_device(table: RowTable) -> RowTable:
    """The same rows where kernels run."""
    return replace(table, blocks=tuple(block.to(DEVICE) for block in table.blocks))


def temperatures(batch: Batch) -> tuple[Tensor, Tensor]:
    """Of the target rows and of the draft rows."""
    return target_temperature(batch), draft_temperature(batch)


def batches(seed: int, *, count: int = 2, requests: int = 3) -> Iterator[Batch]:
    """``count`` random batches on the host; over consecutive seeds every vocabulary in turn."""
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    for number in range(count):
        vocab = VOCABULARIES[(seed * count + number) % len(VOCABULARIES)]
        dtype, draft_dtype = (DTYPES[int(rng.integers(len(DTYPES)))] for _ in range(2))
        maps: dict[int, np.ndarray] = {}
        yield make_batch([_request(rng, generator, vocab, dtype, draft_dtype, maps) for _ in range(requests)])


def _request(
    rng: np.random.Generator,
    generator: torch.Generator,
    vocab: int,
    dtype: torch.dtype,
    draft_dtype: torch.dtype,
    maps: dict[int, np.ndarray],
) -> Request:
    k = int(rng.choice([0, 1, 2, 3, 5, 9, 17]))  # a kernel judges eight rows at a time
    spread = float(rng.choice([0, 1, 4, 12]))  # all equal, flat, like a language model, peaked
    target = (torch.randn((k + 1, vocab), generator=generator) * spread).to(dtype)
    ids = rng.integers(0, vocab, k)
    width = {"none": 0, "same": vocab, "narrow": max(1, vocab // 2), "wide": vocab + 5, "map": max(1, vocab // 3)}
    kind = str(rng.choice(list(width)))
    draft = id_map = None
    if kind != "none" and k:
        draft = torch.randn((k, width[kind]), generator=generator) * spread
        if kind == "same":  # near the target, as drafts are
            draft = target[:k].float() + 0.3 * draft
        draft = draft.to(draft_dtype)
        ids = torch.multinomial(draft.float().softmax(1), 1, generator=generator)[:, 0].numpy()
        if kind == "map":
            id_map = maps.setdefault(width[kind], rng.permutation(vocab)[: width[kind]])
            ids = id_map[ids]
    temperature = float(rng.choice([0, 0.7, 1, 1.3]))
    if temperature == 0 or kind == "none":  # else hardly any would stand
        ids = np.where(rng.random(k) < 0.8, target[:k].float().argmax(1).numpy(), ids)
    tokens = [int(x) for x in ids]
    if k and rng.random() < 0.15:
        tokens[int(rng.integers(k))] = -1
    if k and rng.random() < 0.1:
        tokens[int(rng.integers(k))] = vocab + 3 if kind == "none" else INVALID_TOKEN
    if vocab > 3:
        target[:, rng.integers(0, vocab, vocab // 4)] = -torch.inf
    if rng.random() < 0.15:
        target[int(rng.integers(k + 1)), int(rng.integers(vocab))] = float(rng.choice([np.nan, np.inf, -np.inf]))
    if rng.random() < 0.05:
        target[int(rng.integers(k + 1))] = -torch.inf
    if draft is not None and rng.random() < 0.1:
        draft[int(rng.integers(k)), 0] = torch.nan
    return Request(
        target,
        tokens,
        draft,
        id_map,
        temperature,
        draft_temperature=float(rng.choice([0.5, 1])) if rng.random() < 0.5 else None,
        seed=int(rng.integers(2**64, dtype=np.uint64)),
        position=int(rng.integers(2**40)),
    )
