"""Rules of what stands between a client's row and p."""

from __future__ import annotations

from tests.conformance.rule import VOCAB, K, Rng, Rule, ids, plain, request
from tests.oracle.request import Json

_NEUTRAL: dict[str, Json] = {"repetition_penalty": None, "frequency_penalty": None, "presence_penalty": None}


def _allowed(rng: Rng) -> dict[str, Json]:
    return request(rng, draft=True, allowed_token_ids=ids(rng, 5))


def _allowed_by_row(rng: Rng) -> dict[str, Json]:
    return request(rng, draft=True, allowed_token_ids_by_row=[ids(rng, 5) for _ in range(K + 1)])


def _bonus_row(rng: Rng) -> dict[str, Json]:
    """Only the bonus row is masked; synthetic rates of 1 always lead to it."""
    every = list(range(VOCAB))
    params: dict[str, Json] = {"method": "synthetic", "synthetic_rates": [1.0] * K}
    return request(rng, **params, allowed_token_ids_by_row=[every] * K + [ids(rng, 3)])


def _bias(rng: Rng) -> dict[str, Json]:
    return request(rng, draft=True, temperature=0.5, logit_bias={str(i): 2.0 for i in ids(rng, 3)})


def _min_tokens(rng: Rng) -> dict[str, Json]:
    """Two tokens are out and four are wanted, so that rows 0 and 1 mask the stop ids."""
    made = request(rng, num_output_tokens=2, min_tokens=4)
    made["params"]["stop_token_ids"] = ids(rng, 4)
    return made


def _history(rng: Rng, **params: Json) -> dict[str, Json]:
    """Drafts that repeat each other and the output, so that counts inside the window matter."""
    made = request(rng, prompt_token_ids=ids(rng, 3), output_token_ids=ids(rng, 4, distinct=False), **params)
    repeated = made["params"]["output_token_ids"][0]
    for row in made["target_logits"]:
        row[repeated] = max(row)
    made["draft_token_ids"] = [repeated, repeated, made["draft_token_ids"][2]]
    made["params"]["output_token_ids"][1] = repeated
    return made


def _window(rng: Rng, **params: Json) -> dict[str, Json]:
    """Nothing came before the step: only drafts can be penalised."""
    made = _history(rng, **params)
    del made["params"]["prompt_token_ids"], made["params"]["output_token_ids"]
    return made


def _prompt_only(rng: Rng, **params: Json) -> dict[str, Json]:
    """The prompt holds the likeliest ids."""
    made = request(rng, **params)
    made["params"]["prompt_token_ids"] = sorted({row.index(max(row)) for row in made["target_logits"]})
    return made


def _word(rng: Rng, *, prompt: int, output: int, drafts: int) -> dict[str, Json]:
    """A bad word whose beginning lies across prompt, output and drafts, and whose last id is the likeliest then."""
    made = request(rng, method="strict")
    params = made["params"]
    params["prompt_token_ids"], params["output_token_ids"] = ids(rng, prompt), ids(rng, output)
    text = [*params["prompt_token_ids"], *params["output_token_ids"], *made["draft_token_ids"][:drafts]]
    row = made["target_logits"][drafts]
    row[row.index(max(row))] += 3.0
    for j in range(drafts):  # the rows before lead there
        made["target_logits"][j][made["draft_token_ids"][j]] += 8.0
    params["bad_words"] = [[*text[-3:], row.index(max(row))]]
    return made


def _tied(rng: Rng, **params: Json) -> dict[str, Json]:
    """Few distinct logits, so that the cut falls among equals."""
    made = request(rng, **params)
    made["target_logits"] = [[0.0 if x < 0 else 1.0 for x in row] for row in made["target_logits"]]
    return made


def _crowded(rng: Rng) -> dict[str, Json]:
    return _history(
        rng, temperature=0.75, min_p=0.05, top_k=6, top_p=0.875, repetition_penalty=1.25, presence_penalty=0.5,
        frequency_penalty=0.25, logit_bias={"3": 1.0, "7": -1.0}, allowed_token_ids=list(range(10)),
    )  # fmt: skip


PROCESSING_RULES = (
    Rule("allowed", "Only allowed ids have mass, on every row.", _allowed, {"allowed_token_ids": None}),
    Rule("allowed-by-row", "One list of allowed ids for each row.", _allowed_by_row,
         {"allowed_token_ids_by_row": None}),
    Rule("allowed-bonus-row", "The bonus row is masked too.", _bonus_row, {"allowed_token_ids_by_row": None}),
    Rule("bias", "Biases are added before temperature.", _bias, {"logit_bias": None}),
    Rule("bias-greedy", "Biases count in greedy.",
         lambda rng: request(rng, temperature=0.0, logit_bias={str(i): 3.0 for i in ids(rng, 3)}),
         {"logit_bias": None}),
    Rule("min-tokens", "Stop ids are masked on row j while output length + j < min_tokens.", _min_tokens,
         {"min_tokens": None}),
    Rule("min-tokens-edge-above", "One token more is another result.", _min_tokens, {"min_tokens": 5}),
    Rule("min-tokens-edge", "One token less is another result.", _min_tokens, {"min_tokens": 3}),
    Rule("repetition-penalty", "Divides positive and multiplies negative logits of all ids seen, drafts included.",
         lambda rng: _history(rng, repetition_penalty=2.0), _NEUTRAL),
    Rule("repetition-penalty-prompt", "Repetition covers the prompt.",
         lambda rng: _prompt_only(rng, repetition_penalty=2.0), {"prompt_token_ids": None}),
    Rule("frequency-penalty", "Counts output and drafts before the row.",
         lambda rng: _history(rng, frequency_penalty=0.75), {"frequency_penalty": None, "presence_penalty": 0.75}),
    Rule("presence-penalty", "Once for each id that occurred in output or drafts before the row.",
         lambda rng: _history(rng, presence_penalty=1.5), _NEUTRAL),
    Rule("penalties-not-of-prompt", "Frequency and presence do not count the prompt.",
         lambda rng: _prompt_only(rng, frequency_penalty=1.5, presence_penalty=1.5),
         {"output_token_ids": lambda params: params["prompt_token_ids"]}),
    Rule("frequency-penalty-window", "Frequency counts the drafts before the row.",
         lambda rng: _window(rng, frequency_penalty=1.5), _NEUTRAL),
    Rule("presence-penalty-window", "Presence sees the drafts before the row.",
         lambda rng: _window(rng, presence_penalty=1.5), _NEUTRAL),
    Rule("repetition-penalty-window", "Repetition sees the drafts before the row.",
         lambda rng: _window(rng, repetition_penalty=2.0), _NEUTRAL),
    Rule("penalties-greedy", "Penalties count in greedy, inside the window too.",
         lambda rng: _window(rng, temperature=0.0, presence_penalty=0.75), _NEUTRAL),
    Rule("bad-word-single", "A bad word of one id is masked on every row.",
         lambda rng: _word(rng, prompt=0, output=0, drafts=0), {"bad_words": None}),
    Rule("bad-word-prompt", "A bad word is matched across prompt and output.",
         lambda rng: _word(rng, prompt=2, output=1, drafts=0), {"bad_words": None}),
    Rule("bad-word-window", "A bad word is matched across prompt, output and drafts.",
         lambda rng: _word(rng, prompt=1, output=1, drafts=1), {"bad_words": None}),
    Rule("bad-word-drafts", "A bad word is matched inside the drafts.",
         lambda rng: _word(rng, prompt=1, output=2, drafts=3), {"bad_words": None}),
    Rule("min-p", "Keeps x where p(x) is at least min_p of the largest, at the temperature.",
         plain(min_p=0.3, temperature=1.5), {"min_p": None}),
    Rule("min-p-temperature", "min-p looks at the distribution after temperature.",
         plain(min_p=0.3, temperature=2.0, method="strict"), {"min_p": 0.3**2}),
    Rule("top-k", "Keeps the k largest.", plain(top_k=3), {"top_k": None}),
    Rule("top-k-ties", "Among equals top-k keeps the lowest ids.",
         lambda rng: _tied(rng, top_k=3), {"top_k": 5}),
    Rule("top-p", "Keeps x while the mass before it is below top_p.", plain(top_p=0.6), {"top_p": None}),
    Rule("top-p-ties", "Among equals top-p keeps the lowest ids.", lambda rng: _tied(rng, top_p=0.55), {"top_p": None}),
    Rule("top-p-least", "top-p keeps at least one token.", plain(top_p=1e-6), {"top_p": 0.5}),
    Rule("filters-in-order", "top-p works on the distribution that top-k left.",
         plain(top_k=4, top_p=0.7), {"top_k": None}),
    Rule("filters-block", "Block sees processed rows.", plain(draft=True, method="block", top_k=5, top_p=0.9),
         {"top_k": None, "top_p": None}),
    Rule("filters-strict", "Strict sees processed rows.", plain(method="strict", min_p=0.15, top_k=5),
         {"top_k": None, "min_p": None}),
    Rule("everything", "All processing at once, in order.", _crowded, {"allowed_token_ids": None}),
)  # fmt: skip
