"""Rules of what is reported, of supplied sums, and of rows that cannot be used."""

from __future__ import annotations

from tests.conformance.rule import VOCAB, K, Rng, Rule, ids, plain, request
from tests.oracle.processing import log_sum_exp
from tests.oracle.request import Json
from tests.oracle.step_file import round_logits

_PROCESSED: dict[str, Json] = {"temperature": 0.75, "top_k": 6, "logit_bias": {"2": 1.0}}


def _reports(mode: str, **params: Json) -> Rule:
    make = plain(draft=True, logprobs_modes=[mode], top_logprobs=4, logprob_token_ids=[0, 5], **_PROCESSED, **params)
    other = "processed_logits" if mode.startswith("raw") else "raw_logits"
    name = mode.replace("_", "-")
    return Rule(name, f"Values, ranks, top 4 and chosen ids of {mode}.", make, {"logprobs_modes": [other]})


def _supplied(rng: Rng, *, off: float = 0.0) -> dict[str, Json]:
    made = request(rng, draft=True, temperature=0.75, ranks=False, logprobs_modes=["processed_logprobs"])
    for name in ("target", "draft"):
        table = round_logits(made[f"{name}_logits"], "float32")
        made["params"][f"{name}_logsumexp"] = [log_sum_exp(row, 0.75) + off for row in table]
    return made


def _bad(rng: Rng, value: str, *, row: int) -> dict[str, Json]:
    made = request(rng)
    made["target_logits"][row][int(rng.integers(0, VOCAB))] = value
    return made


def _bad_but_masked(rng: Rng) -> dict[str, Json]:
    made = request(rng, allowed_token_ids=[0, 1, 2, 3])
    made["target_logits"][0][7] = "nan"
    return made


def _not_needed(rng: Rng) -> dict[str, Json]:
    """The first draft token has no mass, so only row 0 is needed."""
    made = request(rng)
    made["target_logits"][0][made["draft_token_ids"][0]] = "-inf"
    made["target_logits"][K][3] = "nan"
    return made


def _block_needs_all(rng: Rng) -> dict[str, Json]:
    made = _not_needed(rng)
    made["params"]["method"] = "block"
    return made


def _nothing_left(rng: Rng) -> dict[str, Json]:
    return request(rng, temperature=0.0, allowed_token_ids=[4], bad_words=[[4]])


def _empty_draft(rng: Rng) -> dict[str, Json]:
    made = request(rng, draft=True)
    made["draft_logits"][0] = ["-inf"] * VOCAB
    return made


def _off_grid(rng: Rng) -> dict[str, Json]:
    made = request(rng, draft=True)
    for table in (made["target_logits"], made["draft_logits"]):
        for row in table:
            row[:] = [round(x + float(rng.uniform(-0.1, 0.1)), 5) for x in row]
    return made


REPORT_RULES = (
    *(_reports(mode) for mode in ("raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits")),
    Rule("several-modes", "Several modes at once.",
         plain(draft=True, logprobs_modes=["raw_logprobs", "processed_logprobs", "processed_logits"], top_logprobs=2,
               **_PROCESSED), {"logprobs_modes": []}),
    Rule("top-logprobs", "n entries, descending, ties by lowest id, -inf entries left out, at most V.",
         lambda rng: request(rng, top_logprobs=20, logprobs_modes=["raw_logprobs", "processed_logprobs"],
                             allowed_token_ids=ids(rng, 5)), {"top_logprobs": 3}),
    Rule("no-ranks", "Ranks can be left out.", plain(ranks=False), {"ranks": None}),
    Rule("no-modes", "No mode, no numbers.", plain(logprobs_modes=[]), {"logprobs_modes": None}),
    Rule("cumulative-cut", "The sum is over what is left after a cut.", plain(draft=True, max_tokens=1),
         {"max_tokens": None}),
    Rule("greedy-logprobs", "In greedy, processed logprobs have neither temperature nor filters.",
         plain(temperature=0.0, top_k=3, logprobs_modes=["processed_logprobs"], top_logprobs=5)),
    Rule("acceptance-probabilities", "min(1, p/q) of draft tokens up to the first rejection.",
         plain(draft=True, acceptance_probabilities=True), {"acceptance_probabilities": None}),
    Rule("float16", "Logits are rounded to float16.", _off_grid, dtype="float16"),
    Rule("bfloat16", "Logits are rounded to bfloat16.", _off_grid, dtype="bfloat16"),
    Rule("supplied-logsumexp", "Supplied log-sum-exps stand for rows.", _supplied),
    Rule("supplied-logsumexp-wrong", "A row that is read and disagrees by more than 1e-3 is INVALID_LOGITS.",
         lambda rng: _supplied(rng, off=0.01), {"target_logsumexp": None, "draft_logsumexp": None}),
    Rule("bad-row-nan", "NaN in a needed row is INVALID_LOGITS, with its row.", lambda rng: _bad(rng, "nan", row=0)),
    Rule("bad-row-inf", "So is +inf, where its row is needed.", lambda rng: _bad(rng, "inf", row=1)),
    Rule("bad-row-masked", "Masked or not.", _bad_but_masked),
    Rule("bad-row-not-needed", "A bad row that is not needed is nobody's business.", _not_needed),
    Rule("bad-row-block", "Block needs all rows.", _block_needs_all, {"method": None}),
    Rule("nothing-left", "Nothing left after masking is INVALID_LOGITS.", _nothing_left, {"bad_words": None}),
    Rule("draft-row-empty", "A needed draft row of only -inf is INVALID_LOGITS.", _empty_draft),
)  # fmt: skip
