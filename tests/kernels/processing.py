"""Steps that process rows, and what a row becomes, element by element as the contract's table says it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import log

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sampler_kernels import Ragged, SamplingParams, Step, TokenCounts
from sampler_kernels.batch import Batch
from sampler_kernels.checks.shapes import host_columns
from sampler_kernels.planning.plan import plan
from sampler_kernels.processors.reference import processors

F32 = NDArray[np.float32]
EDGE = 1e-5


@dataclass(eq=False)
class Request:
    """One request: logits [k+1, V], draft ids, parameters, history, masks by row (ids, None for all)."""

    target: Tensor
    ids: Sequence[int] = ()
    params: SamplingParams = field(default_factory=SamplingParams)
    prompt: Sequence[int] = ()
    output: Sequence[int] = ()
    counted: bool = False
    output_length: int = -1
    bitmask: Sequence[Sequence[int] | None] | None = None
    seed: int = 0


def ragged(lists: Sequence[Sequence[int]]) -> Ragged:
    flat = [token for ids in lists for token in ids]
    return Ragged(torch.tensor(flat, dtype=torch.int64), np.cumsum([0, *map(len, lists)]).tolist())


def make_step(requests: Sequence[Request]) -> Step:
    """The step of these requests; drafts are point masses."""
    vocab = requests[0].target.shape[1]
    counts = [Counter(r.output if r.counted else ()) for r in requests]
    masks: list[NDArray[np.int32]] = []
    index: list[int] = []
    for r in requests:
        for ids in r.bitmask or [None] * len(r.target):
            index.append(-1 if ids is None else len(masks))
            if ids is not None:
                masks.append(packed(ids, vocab))
    step = Step(
        target_logits=torch.cat([r.target for r in requests]),
        draft_token_ids=torch.tensor([x for r in requests for x in r.ids], dtype=torch.int64),
        draft_lengths=[len(r.ids) for r in requests],
        params=[r.params for r in requests],
        params_index=list(range(len(requests))),
        seeds=[r.seed for r in requests],
        prompt_token_ids=ragged([r.prompt for r in requests]),
        output_token_ids=ragged([() if r.counted else r.output for r in requests]),
        output_token_counts=TokenCounts(
            ragged([list(each) for each in counts]),
            torch.tensor([n for each in counts for n in each.values()], dtype=torch.int64),
        ),
        num_output_tokens=[r.output_length for r in requests],
    )
    return replace(step, token_bitmask=torch.tensor(np.array(masks)), token_bitmask_index=index) if masks else step


def packed(ids: Sequence[int], vocab: int) -> NDArray[np.int32]:
    words = [0] * -(-vocab // 32)
    for x in ids:
        words[x // 32] |= 1 << x % 32
    return np.array(words, np.uint32).view(np.int32)


def processed_batch(requests: Sequence[Request]) -> Batch:
    """The batch, its target rows edited."""
    step = make_step(requests)
    batch = plan(step, host_columns(step), torch.device("cpu")).batch
    return replace(batch, target=processors(batch))


def true_row(request: Request, j: int) -> F32:
    """[V] row j in float32 after mask, bias, min-tokens, penalties and bad words."""
    p, x = request.params, request.target[j].float().numpy().copy()
    allowed = p.allowed_token_ids if p.allowed_token_ids_by_row is None else p.allowed_token_ids_by_row[j]
    for ids in (allowed, None if request.bitmask is None else request.bitmask[j]):
        if ids is not None:
            x[sorted({*range(len(x))} - {*ids})] = -np.inf
    for token, bias in p.logit_bias.items():
        x[token] += np.float32(bias)
    length = request.output_length if request.output_length >= 0 else len(request.output)
    if length + j < p.min_tokens:
        x[list(p.stop_token_ids)] = -np.inf
    drafts = list(request.ids[:j])
    generated = [*request.output, *drafts]
    r, f, s = (np.float32(v) for v in (p.repetition_penalty, p.frequency_penalty, p.presence_penalty))
    for i in {*request.prompt, *generated} & {*range(len(x))}:
        x[i] = x[i] / r if x[i] > 0 else x[i] * r
        if i in generated:
            x[i] = x[i] - (f * np.float32(generated.count(i)) + s)
    context = [*request.prompt, *generated]
    for word in p.bad_words:
        start = len(context) - len(word) + 1
        if start >= 0 and context[start:] == list(word[:-1]):
            x[word[-1]] = -np.inf
    return x


def true_kept(x: F32, params: SamplingParams, shift: float = 0.0) -> list[int]:
    """Ids that min-p, top-k and top-p keep, in the contract's order; all in fp64, with a full sort.

    ``shift`` moves the threshold of top-p, to see which elements lie within rounding of it.
    """
    wide = x.astype(np.float64)
    order = np.argsort(-wide, kind="stable")
    order = order[x[order] > -np.inf]
    t = params.temperature
    if params.min_p > 0:
        order = order[wide[order] - wide[order[0]] >= t * (log(params.min_p) - EDGE)]
    if params.top_k > 0:
        order = order[: params.top_k]
    if params.top_p < 1:
        mass = np.exp((wide[order] - wide[order[0]]) / t)
        before = np.cumsum(mass) - mass
        order = order[: max(1, int((before < (params.top_p - EDGE + shift) * mass.sum()).sum()))]
    return [int(i) for i in order]
