"""The same step as an engine would write it in torch: naively, in a loop, and well. What ours is measured against.

All take a dense batch with one k, and answer all of it: emitted tokens, logprobs, top n and ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class DenseStep:
    """B requests of k draft tokens each.

    Attributes:
        target: [B, k+1, V] logits.
        draft: [B, k, V] logits.
        ids: [B, k] int64 draft tokens.
        temperature: Of all requests, and of their drafts.
        top_n: Entries reported beside each emitted token.
        generator: Source of uniforms.
    """

    target: Tensor
    draft: Tensor
    ids: Tensor
    temperature: float
    top_n: int
    generator: torch.Generator


@dataclass(frozen=True, eq=False)
class DenseAnswer:
    """Tokens of each request, and of each emitted token its logprob, rank and the top n of its row."""

    tokens: list[list[int]]
    values: Tensor
    ranks: Tensor
    top_values: Tensor
    top_ids: Tensor


def naive(step: DenseStep) -> DenseAnswer:
    """Everything for every row, then pick: as the formulas read, without a thought for what is needed."""
    k = step.draft.shape[1]
    p = torch.softmax(step.target.float() / step.temperature, -1)
    q = torch.softmax(step.draft.float() / step.temperature, -1)
    u = torch.rand(step.ids.shape, generator=step.generator)
    stands = u * q.gather(2, step.ids[..., None])[..., 0] < p[:, :k].gather(2, step.ids[..., None])[..., 0]
    accepted = stands.long().cumprod(1).sum(1)

    residual = (p[:, :k] - q).clamp(min=0)
    # A residual without mass stays without: multinomial would refuse it, so it gets p of its row.
    residual = torch.where(residual.sum(-1, keepdim=True) > 0, residual, p[:, :k])
    laws = torch.cat([residual, p[:, k:]], 1)
    drawn = torch.multinomial(laws.flatten(0, 1), 1, generator=step.generator).view(len(laws), k + 1)
    final = drawn.gather(1, accepted[:, None])

    emitted = torch.cat([step.ids, final], 1).scatter(1, accepted[:, None], final)
    logprobs = torch.log_softmax(step.target.float(), -1)
    values = logprobs.gather(2, emitted[..., None])
    ranks = (logprobs >= values).sum(-1)
    top = logprobs.topk(step.top_n, -1)
    kept = torch.arange(k + 1) <= accepted[:, None]
    return DenseAnswer(
        _lines(emitted, accepted), values[..., 0][kept], ranks[kept], top.values[kept], top.indices[kept]
    )


def looped(step: DenseStep) -> DenseAnswer:
    """As naive, but request by request, and residuals, draws and ranks only where a token is emitted."""
    p = torch.softmax(step.target.float() / step.temperature, -1)
    q = torch.softmax(step.draft.float() / step.temperature, -1)
    logprobs = torch.log_softmax(step.target.float(), -1)
    top = logprobs.topk(step.top_n, -1)
    tokens: list[list[int]] = []
    values, ranks, rows = [], [], []
    for r, ids in enumerate(step.ids.tolist()):
        out: list[int] = []
        for j, x in enumerate(ids):
            u = torch.rand((), generator=step.generator)
            if u * q[r, j, x] < p[r, j, x]:
                out.append(x)
                continue
            residual = (p[r, j] - q[r, j]).clamp(min=0)
            out.append(int(torch.multinomial(residual, 1, generator=step.generator)))
            break
        else:
            out.append(int(torch.multinomial(p[r, -1], 1, generator=step.generator)))
        tokens.append(out)
        for j, x in enumerate(out):
            values.append(logprobs[r, j, x])
            ranks.append((logprobs[r, j] >= logprobs[r, j, x]).sum())
            rows.append((r, j))
    at = torch.tensor(rows).T
    return DenseAnswer(
        tokens, torch.stack(values), torch.stack(ranks), top.values[at[0], at[1]], top.indices[at[0], at[1]]
    )


def well_written(step: DenseStep) -> DenseAnswer:
    """No loop, one log-softmax, a gather for every accept test, and logprobs of emitted rows only."""
    requests, k, _ = step.draft.shape
    each = torch.arange(requests)
    scaled = step.target.float().div_(step.temperature)
    log_sum = torch.logsumexp(scaled, -1)
    draft = step.draft.float().div_(step.temperature)
    draft_log_sum = torch.logsumexp(draft, -1)
    log_p = scaled[:, :k].gather(2, step.ids[..., None])[..., 0] - log_sum[:, :k]
    log_q = draft.gather(2, step.ids[..., None])[..., 0] - draft_log_sum
    u = torch.rand((requests, k), generator=step.generator)
    accepted = (u.log() + log_q < log_p).long().cumprod(1).sum(1)

    law = scaled[each, accepted].sub_(log_sum[each, accepted, None]).exp_()
    rejected = accepted < k
    place = accepted[rejected]
    q = draft[rejected, place].sub_(draft_log_sum[rejected, place, None]).exp_()
    law[rejected] = (law[rejected] - q).clamp_(min=0)
    prefix = law.cumsum(1)
    threshold = torch.rand((requests, 1), generator=step.generator) * prefix[:, -1:]
    final = torch.searchsorted(prefix, threshold, right=True)

    emitted = torch.cat([step.ids, final], 1).scatter(1, accepted[:, None], final)
    kept = torch.arange(k + 1) <= accepted[:, None]
    token = emitted[kept]
    logprobs = torch.log_softmax(step.target[kept].float(), -1)
    values = logprobs.gather(1, token[:, None])
    ranks = (logprobs >= values).sum(1)
    top = logprobs.topk(step.top_n, -1)
    return DenseAnswer(_lines(emitted, accepted), values[:, 0], ranks, top.values, top.indices)


def _lines(emitted: Tensor, accepted: Tensor) -> list[list[int]]:
    """The emitted tokens of each request: its accepted ones and one more."""
    return [line[: n + 1] for line, n in zip(emitted.tolist(), accepted.tolist(), strict=True)]
