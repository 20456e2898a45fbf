"""Every refusal of a parameter or id that is out of its range or contradicts another."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from tests.oracle.request import LOGPROBS_MODES, METHODS, PLACEHOLDER, Refusal, Request

MAX_DRAFT_TOKENS = 128
MIN_TEMPERATURE = 1e-5
MAX_TOP_LOGPROBS = 256


class _Checker:
    """Raises a Refusal that names the request and the field."""

    def __init__(self, index: int) -> None:
        self.index = index

    def need(self, holds: bool, field_name: str, message: str) -> None:
        if not holds:
            raise Refusal(self.index, field_name, message)

    def ids(self, field_name: str, ids: Iterable[int], vocab_size: int) -> None:
        for token_id in ids:
            self.need(0 <= token_id < vocab_size, field_name, f"id {token_id} is outside [0, {vocab_size})")


def check_request(request: Request, index: int = 0) -> None:
    """Raise Refusal unless every range and every combination of the request is legal."""
    check = _Checker(index)
    _check_shapes(request, check)
    _check_numbers(request, check)
    _check_method(request, check)
    _check_token_ids(request, check)
    _check_logsumexps(request, check)


def _check_shapes(request: Request, check: _Checker) -> None:
    k, target, draft = request.k, request.target_logits, request.draft_logits
    check.need(request.vocab_size >= 1, "vocab_size", "must be at least 1")
    check.need(k <= MAX_DRAFT_TOKENS, "draft_token_ids", f"{k} draft tokens, at most {MAX_DRAFT_TOKENS}")
    check.need(target.shape == (k + 1, request.vocab_size), "target_logits", f"shape {target.shape}")
    if draft is not None:
        check.need(draft.ndim == 2 and draft.shape[0] == k and draft.shape[1] >= 1, "draft_logits", str(draft.shape))
    id_map = request.draft_id_map
    if id_map is not None:
        check.ids("draft_id_map", id_map, request.vocab_size)
        check.need(len(set(id_map)) == len(id_map), "draft_id_map", "duplicate ids")
        check.need(draft is None or draft.shape[1] == len(id_map), "draft_id_map", "not one entry per draft column")


def _check_numbers(request: Request, check: _Checker) -> None:
    p, k = request.params, request.k
    for name, t in (("temperature", p.temperature), ("draft_temperature", p.draft_temperature)):
        legal = t is None or t == 0.0 or MIN_TEMPERATURE <= t < math.inf
        check.need(legal, name, f"{t} is neither 0 nor in [1e-5, inf)")
    check.need(0.0 < p.top_p <= 1.0, "top_p", f"{p.top_p} is outside (0, 1]")
    check.need(0.0 <= p.min_p <= 1.0, "min_p", f"{p.min_p} is outside [0, 1]")
    check.need(p.top_k >= 0, "top_k", f"{p.top_k} is negative")
    check.need(p.repetition_penalty > 0.0, "repetition_penalty", f"{p.repetition_penalty} is not above 0")
    penalties = (
        ("repetition_penalty", p.repetition_penalty),
        ("frequency_penalty", p.frequency_penalty),
        ("presence_penalty", p.presence_penalty),
        *(("logit_bias", bias) for bias in p.logit_bias.values()),
    )
    for name, value in penalties:
        # They are applied in fp32, so that is where they must be finite.
        with np.errstate(over="ignore"):
            check.need(bool(np.isfinite(np.float32(value))), name, f"{value} is not finite in fp32")
    check.need(0.0 < p.typical_epsilon <= 1.0, "typical_epsilon", f"{p.typical_epsilon} is outside (0, 1]")
    check.need(0.0 < p.typical_delta <= 1.0, "typical_delta", f"{p.typical_delta} is outside (0, 1]")
    check.need(p.max_tokens is None or p.max_tokens >= 1, "max_tokens", f"{p.max_tokens} is below 1")
    check.need(p.min_tokens >= 0, "min_tokens", f"{p.min_tokens} is negative")
    check.need(p.num_output_tokens is None or p.num_output_tokens >= 0, "num_output_tokens", "is negative")
    check.need(0 <= p.top_logprobs <= MAX_TOP_LOGPROBS, "top_logprobs", f"{p.top_logprobs} is outside [0, 256]")
    check.need(p.position >= 0 and p.position + k < 2**64, "position", f"{p.position} + k is outside [0, 2**64)")
    check.need(p.seed is None or 0 <= p.seed < 2**64, "seed", f"{p.seed} is outside [0, 2**64)")
    for mode in p.logprobs_modes:
        check.need(mode in LOGPROBS_MODES, "logprobs_modes", f"unknown mode {mode!r}")


def _check_method(request: Request, check: _Checker) -> None:
    p = request.params
    check.need(p.method in METHODS, "method", f"unknown method {p.method!r}")
    rates = p.synthetic_rates if p.synthetic_rates is not None else ()
    check.need(all(0.0 <= r <= 1.0 for r in rates), "synthetic_rates", "a rate is outside [0, 1]")
    if p.method == "synthetic":
        check.need(len(rates) >= request.k, "synthetic_rates", f"{len(rates)} rates for {request.k} draft tokens")
    check.need(p.relaxed_top_n is None or p.relaxed_top_n >= 1, "relaxed_top_n", "is below 1")
    check.need(p.relaxed_margin is None or p.relaxed_margin >= 0.0, "relaxed_margin", "is negative or NaN")
    if p.method == "relaxed":
        check.need(p.relaxed_top_n is not None, "relaxed_top_n", "is required by relaxed")
        check.need(p.relaxed_margin is not None, "relaxed_margin", "is required by relaxed")


def _check_token_ids(request: Request, check: _Checker) -> None:
    p, vocab_size = request.params, request.vocab_size
    both = p.allowed_token_ids is not None and p.allowed_token_ids_by_row is not None
    check.need(not both, "allowed_token_ids", "given together with allowed_token_ids_by_row")
    if p.allowed_token_ids is not None:
        check.need(len(p.allowed_token_ids) > 0, "allowed_token_ids", "is empty")
        check.ids("allowed_token_ids", p.allowed_token_ids, vocab_size)
    if p.allowed_token_ids_by_row is not None:
        rows = p.allowed_token_ids_by_row
        check.need(len(rows) == request.k + 1, "allowed_token_ids_by_row", f"{len(rows)} lists, not k + 1")
        for row in rows:
            check.need(len(row) > 0, "allowed_token_ids_by_row", "holds an empty list")
            check.ids("allowed_token_ids_by_row", row, vocab_size)
    check.ids("logit_bias", p.logit_bias, vocab_size)
    check.ids("stop_token_ids", p.stop_token_ids, vocab_size)
    for word in p.bad_words:
        check.need(len(word) > 0, "bad_words", "holds an empty word")
        check.ids("bad_words", word, vocab_size)
    check.ids("logprob_token_ids", p.logprob_token_ids, vocab_size)
    _check_draft_token_ids(request, check)


def _check_draft_token_ids(request: Request, check: _Checker) -> None:
    """A draft id is -1 or one that the draft vocabulary can produce; the ids after a -1 too."""
    if request.draft_logits is None:
        producible = set(range(request.vocab_size))
    elif request.draft_id_map is not None:
        producible = set(request.draft_id_map)
    else:
        producible = set(range(request.draft_logits.shape[1]))
    for token_id in request.draft_token_ids:
        legal = token_id == PLACEHOLDER or token_id in producible
        check.need(legal, "draft_token_ids", f"id {token_id} is outside the draft vocabulary")


def _check_logsumexps(request: Request, check: _Checker) -> None:
    """Supplied log-sum-exps go with a step that needs gathered logits and one drawn row, and nothing else."""
    p, k = request.params, request.k
    if p.target_logsumexp is None and p.draft_logsumexp is None:
        return
    name = "target_logsumexp" if p.target_logsumexp is not None else "draft_logsumexp"
    check.need(p.target_logsumexp is None or len(p.target_logsumexp) == k + 1, name, "not k + 1 entries")
    if p.draft_logsumexp is not None:
        check.need(request.draft_logits is not None, "draft_logsumexp", "without draft logits")
        check.need(len(p.draft_logsumexp) == k, "draft_logsumexp", "not k entries")
    check.need(p.method == "standard" and p.temperature > 0.0, name, "only for the standard method")
    unprocessed = (
        p.top_k == 0 or p.top_k >= request.vocab_size,
        p.top_p == 1.0,
        p.min_p == 0.0,
        p.min_tokens == 0,
        p.allowed_token_ids is None and p.allowed_token_ids_by_row is None,
        not p.logit_bias and not p.bad_words,
        p.repetition_penalty == 1.0 and p.frequency_penalty == 0.0 and p.presence_penalty == 0.0,
    )
    check.need(all(unprocessed), name, "only with no processing but temperature")
    check.need(not p.ranks and p.top_logprobs == 0, name, "only without ranks and top_logprobs")
    raw = "raw_logprobs" in p.logprobs_modes
    check.need(not raw or p.temperature == 1.0, name, "raw_logprobs only at temperature 1")
