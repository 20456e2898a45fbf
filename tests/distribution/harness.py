"""Decodes many sequences of a case over several steps, and compares every position and pair with the known law.

Each sequence has its own seed. Drafts are drawn from q by inverse CDF with the uniforms that the contract keeps for the
draft side (purpose 2), by a Philox in numpy that shares nothing with the product's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from sampler_kernels import DraftBlock, Ragged, Reason, Status, Step, StepRefused, StepResult, check, verify
from tests.distribution.cases import Case
from tests.distribution.chi_square import Fit, Floats, Ints, fit
from tests.distribution.processed import in_context
from tests.docs.philox import uniform

FIRST_POSITION = 2**32 - 3
"""Sequences cross the low word of the position."""

_ELEMENTS_A_STEP = 1 << 22
"""Target logits of one step at most: enough for a full batch, small enough to stay below 100 MB with all copies."""


def waits_for(case: Case) -> str | None:
    """What has to be built before the case can run; None if it runs. Any other refusal is an error."""
    try:
        check(_step(case, np.zeros(1, np.uint64), np.full(1, FIRST_POSITION), np.zeros(1, np.int64)))
    except StepRefused as refused:
        if refused.reason is not Reason.NOT_IMPLEMENTED:
            raise
        return str(refused)
    return None


def laws(case: Case, *, seeds: int, length: int, backend: str, first_seed: int = 0) -> list[Fit]:
    """How the tokens of many seeds fit the law: one fit for each position, then one for each adjacent pair."""
    tokens = decode(case, seeds=seeds, length=length, backend=backend, first_seed=first_seed)
    if case.prompt is not None:
        return _context_fits(case, tokens)
    vocab, p = case.vocab_size, case.p
    cell = np.arange(vocab) % case.cells
    fits, pairs = [], []
    marginal = p[0]
    for i in range(length):
        fits.append(fit(f"{case}: token {i}", np.bincount(tokens[:, i], minlength=vocab), marginal))
        if i + 1 < length:
            together = cell[tokens[:, i]] * case.cells + cell[tokens[:, i + 1]]
            law = _pair_law(marginal, p, cell, case.cells)
            pairs.append(fit(f"{case}: tokens {i} and {i + 1}", np.bincount(together, minlength=law.size), law.ravel()))
            marginal = _by_class(marginal, case.classes) @ p
    return fits + pairs


def _context_fits(case: Case, tokens: Ints) -> list[Fit]:
    """As :func:`laws`, where a row's law depends on all tokens before it: those of every beginning are enumerated."""
    assert case.prompt is not None
    vocab, logits = case.vocab_size, case.target.double().numpy()
    beginnings: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    fits, pairs = [], []
    for i in range(tokens.shape[1]):
        law = np.zeros((vocab, vocab))  # by the token before, 0 where there is none
        longer: list[tuple[tuple[int, ...], float]] = []
        for context, mass in beginnings:
            last = context[-1] if context else 0
            p = mass * in_context(logits[last % case.classes], case.prompt, context, case.params)
            law[last] += p
            longer += [((*context, token), float(p[token])) for token in np.flatnonzero(p).tolist()]
        beginnings = longer
        fits.append(fit(f"{case}: token {i}", np.bincount(tokens[:, i], minlength=vocab), law.sum(0)))
        if i:
            together = np.bincount(tokens[:, i - 1] * vocab + tokens[:, i], minlength=vocab * vocab)
            pairs.append(fit(f"{case}: tokens {i - 1} and {i}", together, law.ravel()))
    return fits + pairs


def decode(case: Case, *, seeds: int, length: int, backend: str, first_seed: int = 0) -> Ints:
    """[seeds, length] tokens of the seeds ``first_seed``, ``first_seed + 1``, ..., in as many steps as it takes."""
    tokens = np.zeros((seeds, length + case.k + 1), np.int64)
    done = np.zeros(seeds, np.int64)
    at_once = max(1, _ELEMENTS_A_STEP // ((case.k + 1) * case.vocab_size))
    while (active := np.flatnonzero(done < length)).size:
        for some in np.split(active, range(at_once, len(active), at_once)):
            last = np.where(done[some] > 0, tokens[some, done[some] - 1], 0)
            step = _step(case, (first_seed + some).astype(np.uint64), FIRST_POSITION + done[some], last)
            if case.prompt is not None:
                step = _with_history(step, case.prompt, [tokens[r, : done[r]] for r in some])
            result = verify(step, backend=backend)
            _keep(result, tokens, done, some)
    return tokens[:, :length]


def _with_history(step: Step, prompt: Sequence[int], outputs: Sequence[Ints]) -> Step:
    """The step with one prompt for all, and what each sequence has emitted so far."""
    cu = np.concatenate([[0], np.cumsum([len(output) for output in outputs])])
    n = len(outputs)
    return replace(
        step,
        prompt_token_ids=Ragged(torch.tensor([*prompt] * n), range(0, n * len(prompt) + 1, len(prompt))),
        output_token_ids=Ragged(torch.from_numpy(np.concatenate(outputs)), cu.tolist()),
    )


def accepted(case: Case, *, seeds: int, backend: str) -> Ints:
    """[seeds] draft tokens that stand in the first step of the seeds 0, 1, ..."""
    every = np.arange(seeds)
    step = _step(case, every.astype(np.uint64), np.zeros_like(every), np.zeros_like(every))
    return verify(step, backend=backend).num_accepted.astype(np.int64)


def _keep(result: StepResult, tokens: Ints, done: Ints, which: Ints) -> None:
    """Appends what a step emitted to the sequences ``which``."""
    assert (result.status == Status.OK).all(), "every row can be drawn from"
    emitted = np.diff(result.cu_tokens)
    assert (emitted == result.num_accepted + 1).all(), "accepted tokens and one more"
    request = np.repeat(np.arange(len(which)), emitted)
    place = done[which][request] + np.arange(len(request)) - result.cu_tokens[request]
    tokens[which[request], place] = result.token_ids
    done[which] += emitted


def _step(case: Case, seeds: np.ndarray[tuple[int], np.dtype[np.uint64]], positions: Ints, last: Ints) -> Step:
    """The next step of n sequences, drafts drawn.

    Args:
        case: Target and draft.
        seeds: [n].
        positions: [n], of the token to come.
        last: [n], the token before it.
    """
    n, k = len(seeds), case.k
    column_cdf = np.cumsum(case.q, axis=1)
    id_of_column = np.arange(case.draft.shape[1]) if case.id_map is None else case.id_map.ids.numpy()
    drafts, classes = np.zeros((n, k), np.int64), np.zeros((n, k + 1), np.int64)
    classes[:, 0] = last % case.classes
    for j in range(k):
        u = uniform(seeds, (positions + j).astype(np.uint64), 2, j)
        drafts[:, j] = id_of_column[_inverse_cdf(column_cdf, classes[:, j], u)]
        classes[:, j + 1] = drafts[:, j] % case.classes
    drawn = np.broadcast_to(np.arange(k) < _lengths(case, seeds, positions)[:, None], (n, k))
    if case.padded:
        drafts, kept = np.where(drawn, drafts, -1), np.ones((n, k), bool)
    else:
        kept = drawn
    rows = np.concatenate([np.ones((n, 1), bool), kept], axis=1)
    return Step(
        target_logits=case.target[torch.from_numpy(classes[rows])],
        draft_token_ids=torch.from_numpy(drafts[kept]),
        draft_lengths=kept.sum(axis=1).tolist(),
        draft_blocks=[DraftBlock(case.draft[torch.from_numpy(classes[:, :k][kept])], case.id_map)]
        if case.sends_draft
        else [],
        params=[case.params],
        seeds=seeds.tolist(),
        positions=positions.tolist(),
    )


def _lengths(case: Case, seeds: np.ndarray[tuple[int], np.dtype[np.uint64]], positions: Ints) -> Ints:
    """[n] draft tokens that each sequence draws in this step."""
    if not case.ragged:
        return np.full(len(seeds), case.k)
    lengths: Ints = (seeds.astype(np.int64) + positions) % (case.k + 1)
    return lengths


def _inverse_cdf(cdf: Floats, row: Ints, u: Floats) -> Ints:
    """[n] the smallest column of each row's CDF that exceeds u times the total."""
    columns = np.zeros(len(row), np.int64)
    for c in range(len(cdf)):
        here = row == c
        columns[here] = np.searchsorted(cdf[c], u[here] * cdf[c, -1], side="right")
    last: Ints = np.minimum(columns, cdf.shape[1] - 1)
    return last


def _by_class(law: Floats, classes: int) -> Floats:
    """[C] the mass of each class of tokens."""
    return np.bincount(np.arange(len(law)) % classes, law, classes).astype(np.float64)


def _pair_law(marginal: Floats, p: Floats, cell: Ints, cells: int) -> Floats:
    """[cells, cells] the law of two neighbours, the first of which follows ``marginal``."""
    classes, vocab = p.shape
    first = np.zeros((cells, classes))
    np.add.at(first, (cell, np.arange(vocab) % classes), marginal)
    second = np.zeros((classes, cells))
    np.add.at(second.T, cell, p.T)
    return first @ second
