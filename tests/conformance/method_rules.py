"""Rules of methods, randomness and cuts."""

from __future__ import annotations

from tests.conformance.rule import VOCAB, K, Rng, Rule, ids, plain, request
from tests.oracle.request import PLACEHOLDER, Json


def _mapped(rng: Rng) -> dict[str, Json]:
    made = request(rng, draft=True, width=7)
    made["draft_id_map"] = ids(rng, 7)
    made["draft_token_ids"] = [made["draft_id_map"][column] for column in made["draft_token_ids"]]
    return made


def _padded(rng: Rng, **params: Json) -> dict[str, Json]:
    made = request(rng, draft=True, **params)
    made["draft_token_ids"][int(rng.integers(0, K)) :] = [PLACEHOLDER]
    made["draft_token_ids"] += [5] * (K - len(made["draft_token_ids"]))  # checked, and of no other consequence
    return made


def _past_vocabulary(rng: Rng) -> dict[str, Json]:
    made = request(rng, draft=True, width=VOCAB + 3)
    made["draft_token_ids"][1] = VOCAB + int(rng.integers(0, 3))
    return made


def _impossible(rng: Rng) -> dict[str, Json]:
    made = request(rng, draft=True)
    made["target_logits"][0][made["draft_token_ids"][0]] = "-inf"
    return made


def _not_proposed(rng: Rng) -> dict[str, Json]:
    made = request(rng, draft=True)
    made["draft_logits"][0][made["draft_token_ids"][0]] = "-inf"
    return made


def _no_drafts(rng: Rng) -> dict[str, Json]:
    return request(rng, k=0)


def _stop(rng: Rng) -> dict[str, Json]:
    made = request(rng, draft=True)
    made["params"]["stop_token_ids"] = [made["draft_token_ids"][int(rng.integers(0, 2))]]
    return made


def _stop_at_limit(rng: Rng) -> dict[str, Json]:
    made = request(rng, draft=True, max_tokens=2)
    made["params"]["stop_token_ids"] = [made["draft_token_ids"][1]]
    return made


def _carry(rng: Rng) -> dict[str, Json]:
    """The first two drafts are sure to stand, so that what is decided lies beyond 2^32."""
    made = request(rng, position=2**32 - 2)
    for row, x in zip(made["target_logits"][:2], made["draft_token_ids"], strict=False):
        row[x] += 30.0
    return made


def _tied(rng: Rng) -> dict[str, Json]:
    """The best logit occurs more often than top n."""
    made = request(rng, method="relaxed", relaxed_top_n=3, relaxed_margin=0.5)
    made["target_logits"] = [[0.0 if x < 0 else 1.0 for x in row] for row in made["target_logits"]]
    return made


METHOD_RULES = (
    Rule("greedy", "At temperature 0 a token stands while it is the argmax, ties to the lowest id.",
         plain(temperature=0.0), {"temperature": 1.0}),
    Rule("standard", "A draft token x stands iff u q(x) < p(x); a rejected one is redrawn from max(p - q, 0).",
         plain(draft=True), {"draft_temperature": 0.0}),
    Rule("standard-point-mass", "Without draft logits q is a point mass; the residual is p without the token.",
         plain(), {"method": "strict"}),
    Rule("standard-impossible", "A token of p = 0 never stands.", _impossible),
    Rule("standard-not-proposed", "A token of q = 0 and p > 0 stands.", _not_proposed),
    Rule("no-drafts", "With k = 0 one token is drawn.", _no_drafts),
    Rule("temperature", "p is taken at the temperature, and so is q.", plain(draft=True, temperature=0.6),
         {"temperature": None}),
    Rule("draft-temperature", "Draft logits come raw, and are divided by draft_temperature.",
         plain(draft=True, draft_temperature=0.5), {"draft_temperature": None}),
    Rule("draft-temperature-zero", "draft_temperature 0 makes q a point mass, whatever the draft logits.",
         plain(draft=True, draft_temperature=0.0), {"draft_temperature": None}),
    Rule("draft-id-map", "Column i of a reduced draft vocabulary is target id map[i].", _mapped),
    Rule("draft-vocabulary-smaller", "Ids at or beyond V_d have q = 0.", plain(draft=True, width=8)),
    Rule("draft-vocabulary-larger", "An id at or beyond V never stands.", _past_vocabulary),
    Rule("placeholder", "At a -1 the final token is drawn from p, not from a residual.", _padded),
    Rule("strict", "A draft token stands while it is what the row's own draw gives.",
         plain(draft=True, method="strict"), {"method": None}),
    Rule("block", "Of block's tests the last that holds decides, and the residual is max(c p - q, 0).",
         plain(draft=True, method="block"), {"method": None}, count=16),
    Rule("block-point-mass", "Block beside a point mass.", plain(method="block"), {"method": None}),
    Rule("block-placeholder", "Block's k is the number of drafts before the first -1.",
         lambda rng: _padded(rng, method="block"), {"method": None}),
    Rule("synthetic", "A draft token stands iff u < its rate; the final token is drawn from p.",
         plain(method="synthetic", synthetic_rates=[0.8, 0.5, 0.3]), {"method": None, "synthetic_rates": None}),
    Rule("typical", "A draft token stands iff p > min(epsilon, delta exp(-entropy)).",
         plain(method="typical", typical_epsilon=0.2, typical_delta=0.5),
         {"method": None, "typical_epsilon": None, "typical_delta": None}),
    Rule("typical-processed", "Typical's p and entropy are those of the processed row.",
         plain(method="typical", typical_epsilon=0.3, typical_delta=0.6, temperature=2.0), {"temperature": None}),
    Rule("relaxed", "A draft token stands iff it ranks within top n, ties counted, and within the margin of the best.",
         plain(method="relaxed", relaxed_top_n=3, relaxed_margin=1.5),
         {"method": None, "relaxed_top_n": None, "relaxed_margin": None}),
    Rule("relaxed-margin", "The margin counts, and a logit exactly at it stands.",
         plain(method="relaxed", relaxed_top_n=5, relaxed_margin=0.5), {"relaxed_margin": 0.375}),
    Rule("relaxed-ties", "Equals count in the rank: four best of one value all rank fourth.", _tied,
         {"relaxed_top_n": VOCAB}),
    Rule("lossy-greedy", "At temperature 0 the lossy methods stay, with the argmax as final token.",
         plain(method="relaxed", relaxed_top_n=3, relaxed_margin=2.0, temperature=0.0),
         {"method": None, "relaxed_top_n": None, "relaxed_margin": None}),
    Rule("position", "Randomness is that of the position, high word included.", plain(draft=True, position=2**32 + 100),
         {"position": 100}),
    Rule("position-carry", "A step that crosses 2^32 carries into the high word.", _carry,
         {"position": 2**40 - 2}),
    Rule("stop", "Emitted tokens end with the first stop id, and no bonus token follows.", _stop,
         {"stop_token_ids": None}),
    Rule("max-tokens", "Emitted tokens end at max_tokens, also where it is reached exactly.",
         plain(draft=True, max_tokens=2), {"max_tokens": None}),
    Rule("stop-at-limit", "A stop id that is the last token allowed is a stop.", _stop_at_limit,
         {"stop_token_ids": None}),
)  # fmt: skip
