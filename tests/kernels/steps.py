"""Batches built by hand, and the step in fp64 numpy, request by request: what the operations are held to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels.batch import Batch, MethodCode
from sampler_kernels.draw.reference import draw
from sampler_kernels.flatten.reference import flatten
from sampler_kernels.outcome import Decision, TopLogits
from sampler_kernels.rejection.reference import rejection
from sampler_kernels.rows import RowTable
from sampler_kernels.stats.reference import LazyRowStats
from sampler_kernels.stats.temperatures import draft_temperature, target_temperature
from sampler_kernels.topk_logprobs.reference import topk_logprobs

F64 = NDArray[np.float64]


@dataclass(eq=False)
class Request:
    """One request of a hand-made batch. Logits are matrices, [k+1, V] and [k, V_d]."""

    target: Tensor
    ids: Sequence[int] = ()
    draft: Tensor | None = None
    id_map: NDArray[np.int64] | None = None
    temperature: float = 1.0
    draft_temperature: float | None = None
    seed: int = 0
    position: int = 0

    @property
    def reads_draft(self) -> bool:
        return self.draft is not None and self.temperature > 0 and self.q_temperature > 0

    @property
    def q_temperature(self) -> float:
        return self.temperature if self.draft_temperature is None else self.draft_temperature


def signed(value: int) -> int:
    """The bits of an unsigned 64-bit number as a signed one."""
    return value - (1 << 64) if value >= 1 << 63 else value


def make_batch(requests: Sequence[Request]) -> Batch:
    """The batch of these requests; every request brings its rows as blocks of their own."""
    vocab = requests[0].target.shape[1]
    lengths = [len(r.ids) for r in requests]
    maps = {id(r.id_map): r.id_map for r in requests if r.id_map is not None}
    inverse = []
    for id_map in maps.values():
        table = np.full(vocab, -1, np.int32)
        table[id_map] = np.arange(len(id_map))
        inverse.append(torch.from_numpy(table))
    reading = [r for r in requests if r.reads_draft and r.ids]
    draft_row, next_row = [], 0
    for r in requests:
        here = r.reads_draft
        draft_row += [next_row + j if here else -1 for j in range(len(r.ids))]
        next_row += len(r.ids) if here else 0

    def column(values: Iterable[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(list(values), dtype=dtype)

    map_of = [list(maps).index(id(r.id_map)) if r.id_map is not None and r.reads_draft else -1 for r in requests]
    return Batch(
        vocab_size=vocab,
        target=_table([r.target for r in requests]),
        draft=_table([r.draft for r in reading if r.draft is not None]),
        draft_lengths=column(lengths, torch.int32),
        cu_num_logits=column(np.cumsum([0, *(k + 1 for k in lengths)]), torch.int32),
        cu_drafts=column(np.cumsum([0, *lengths]), torch.int32),
        draft_token_ids=column([x for r in requests for x in r.ids], torch.int32),
        draft_row=column(draft_row, torch.int32),
        inverse_maps=tuple(inverse),
        draft_map=column(np.repeat(map_of, lengths), torch.int32),
        method=column([MethodCode.STANDARD if r.temperature else MethodCode.GREEDY for r in requests], torch.int32),
        temperature=column([r.temperature for r in requests], torch.float64),
        draft_temperature=column([r.q_temperature for r in requests], torch.float64),
        seed=column([signed(r.seed) for r in requests], torch.int64),
        position=column([signed(r.position) for r in requests], torch.int64),
    )


def _table(blocks: Sequence[Tensor]) -> RowTable:
    return RowTable(
        tuple(blocks),
        np.repeat(np.arange(len(blocks), dtype=np.int32), [len(b) for b in blocks]),
        np.concatenate([np.arange(len(b)) for b in blocks]) if blocks else np.zeros(0, np.int64),
    )


def lazy_stats(batch: Batch) -> tuple[LazyRowStats, LazyRowStats]:
    """Of the batch's target and draft rows, at their requests' temperatures."""
    target = LazyRowStats(batch.target, target_temperature(batch), raw=True)
    return target, LazyRowStats(batch.draft, draft_temperature(batch), raw=False)


@dataclass(eq=False)
class Outcome:
    """Everything the operations say of a batch."""

    decision: Decision
    tokens: Tensor
    emitted: Tensor
    logprobs: TopLogits
    cu: list[int]

    def of(self, r: int) -> list[int]:
        """The emitted tokens of one request."""
        row = self.emitted[self.cu[r] : self.cu[r + 1]]
        return row[row >= 0].tolist()


def run_batch(batch: Batch, *, top_n: int = 0, ranks: bool = True, chosen: Tensor | None = None) -> Outcome:
    """The operations in the order of a step."""
    target, draft = lazy_stats(batch)
    decision = rejection(batch, target, draft)
    tokens = draw(batch, target, draft, decision)
    emitted = flatten(batch, decision, tokens)
    logprobs = topk_logprobs(batch, target, emitted, raw=True, top_n=top_n, ranks=ranks, chosen_ids=chosen)
    return Outcome(decision, tokens, emitted, logprobs, batch.cu_num_logits.tolist())


def run(requests: Sequence[Request], *, top_n: int = 0) -> Outcome:
    """A batch made and run."""
    return run_batch(make_batch(requests), top_n=top_n)


# ---- the truth ----


def true_uniform(seed: int, position: int, purpose: int, s: int) -> float:
    """Philox4x32-10 with Python's integers."""
    mask = 0xFFFFFFFF
    c = [position & mask, position >> 32, purpose, s]
    k0, k1 = seed & mask, seed >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & mask, (a >> 32) ^ c[3] ^ k1, a & mask]
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return (((c[0] << 32 | c[1]) >> 12) + 0.5) * 2.0**-52


def true_softmax(row: Tensor, temperature: float) -> F64:
    x = row.double().numpy() / (temperature or 1.0)
    e = np.exp(x - x.max())
    return np.asarray(e / e.sum())


def true_q(request: Request, j: int, vocab: int) -> F64:
    """[V] the draft's probabilities of the target's ids."""
    q = np.zeros(vocab)
    if not request.reads_draft:
        if request.ids[j] < vocab:
            q[request.ids[j]] = 1.0
        return q
    assert request.draft is not None
    of_column = true_softmax(request.draft[j], request.q_temperature)
    if request.id_map is not None:
        q[request.id_map] = of_column
    else:
        shared = min(vocab, len(of_column))
        q[:shared] = of_column[:shared]
    return q


@dataclass
class Truth:
    """What a request must answer, and how near its decisions were to going the other way."""

    tokens: list[int] = field(default_factory=list)
    bad_row: int = -1
    margin: float = np.inf


def true_request(request: Request) -> Truth:
    """What the contract says of one request, greedy or standard, in fp64."""
    vocab = request.target.shape[1]
    truth = Truth()

    def bad(row: Tensor) -> bool:
        return bool(row.isnan().any() or (row == np.inf).any() or (row == -np.inf).all())

    for j in range(len(request.ids) + 1):
        row = request.target[j]
        x = request.ids[j] if j < len(request.ids) else -1
        reads = x >= 0 and request.reads_draft
        if bad(row) or (reads and request.draft is not None and bad(request.draft[j])):
            return Truth(bad_row=j)
        if request.temperature == 0:
            best = int(np.argmax(row.double().numpy()))
            truth.tokens.append(best)
            if x != best:
                return truth
            continue
        p = true_softmax(row, request.temperature)
        law = p
        if x >= 0:
            q = true_q(request, j, vocab)
            u = true_uniform(request.seed, request.position + j, 0, j)
            px, qx = (p[x], q[x]) if x < vocab else (0.0, 1.0)
            truth.margin = min(truth.margin, abs(u * qx - px))
            if u * qx < px:
                truth.tokens.append(x)
                continue
            law = np.maximum(p - q, 0)
            law = law / law.sum() if law.sum() > 0 else p
        prefix = np.cumsum(law)
        u = true_uniform(request.seed, request.position + j, 1, 0)
        truth.margin = min(truth.margin, float(np.abs(prefix - u * prefix[-1]).min()))
        truth.tokens.append(int(np.searchsorted(prefix, u * prefix[-1], side="right")))
        return truth
    return truth
