"""A seeded generator of random step-file objects over every part of the contract, or over the parts named.

Drafts are drawn from q with the draft side's own uniforms, as the lossless methods need; histories repeat n-grams of
the drafts and bad words are cut from them, so that rules about context really bite; logits are often quantised, for
ties. Every step it makes is legal; see refusals.py for illegal ones.
"""

from __future__ import annotations

import math

import numpy as np

from tests.oracle import philox
from tests.oracle.generate_params import logprobs_params, processing_params
from tests.oracle.processing import log_sum_exp, softmax
from tests.oracle.request import LOSSY_METHODS, PLACEHOLDER, Floats, Json, Logits
from tests.oracle.step_file import round_logits

METHOD_FEATURES = frozenset({"greedy", "standard", "strict", "block", "synthetic", "typical", "relaxed"})
FIRST_CUT = frozenset(
    {"greedy", "standard", "temperature", "draft_temperature", "vocabularies", "placeholders", "top_logprobs",
     "ranks", "chosen", "bad_rows", "seedless"}
)  # fmt: skip
"""Greedy and standard with raw logprobs, and nothing that processes a row but temperature."""
ALL = FIRST_CUT | METHOD_FEATURES | frozenset(
    {"logprobs_modes", "mask", "bias", "min_tokens", "penalties", "bad_words", "min_p", "top_k", "top_p", "stop",
     "max_tokens", "logsumexp", "acceptance_probabilities"}
)  # fmt: skip
DTYPES = ("float32", "float16", "bfloat16")
_LESS_THAN_HALF_A_STEP = {"float32": 2.0**-27, "float16": 2.0**-14, "bfloat16": 2.0**-11}
"""Relative; a step is at least 2**-24, 2**-11 and 2**-8 of a normal value, and more of a subnormal one."""


def generate_step(
    seed: int, features: frozenset[str] = ALL, *, max_vocab: int = 4096, max_requests: int = 4, max_k: int = 12
) -> dict[str, Json]:
    """The step-file object of this seed: 1..max_requests requests, V up to max_vocab, 0..max_k draft tokens each."""
    unknown = features - ALL
    if unknown or not features & METHOD_FEATURES:
        raise ValueError(f"unknown features {sorted(unknown)}, or no method among {sorted(features)}")
    rng = np.random.default_rng(seed)
    vocab_size = min(max_vocab, _vocab_size(rng))
    step: dict[str, Json] = {"vocab_size": vocab_size, "dtype": str(rng.choice(DTYPES))}
    if rng.random() < 0.3:
        step["draft_dtype"] = str(rng.choice(DTYPES))
    count = int(rng.integers(1, max_requests + 1))
    step["requests"] = [_Maker(rng, features, step, max_k).request() for _ in range(count)]
    return step


def _vocab_size(rng: np.random.Generator) -> int:
    """Tiny ones mostly, for ties and n-grams; now and then across a tile's edge."""
    choices = [(1, 4), (2, 9), (2, 9), (9, 33), (33, 130), (130, 700), (4090, 4100)]
    low, high = choices[int(rng.choice(len(choices), p=[0.03, 0.27, 0.2, 0.25, 0.12, 0.08, 0.05]))]
    return int(rng.integers(low, high))


class _Maker:
    """Makes one request."""

    def __init__(self, rng: np.random.Generator, features: frozenset[str], step: dict[str, Json], max_k: int) -> None:
        self.rng = rng
        self.features = features
        self.vocab_size: int = step["vocab_size"]
        self.dtype: str = step["dtype"]
        self.draft_dtype: str = str(step.get("draft_dtype", self.dtype))
        small_k = int(rng.choice([0, 1, 2, 3, 4, 5], p=[0.1, 0.15, 0.2, 0.2, 0.2, 0.15]))
        self.k = min(max_k, small_k if rng.random() < 0.9 else int(rng.integers(6, 13)))

    def has(self, feature: str, probability: float) -> bool:
        """Whether the feature is allowed and, with this probability, used here."""
        return bool(self.rng.random() < probability) and feature in self.features

    def request(self) -> dict[str, Json]:
        rng = self.rng
        self.params: dict[str, Json] = {}
        self._method_and_temperature()
        self._randomness()
        target = self._target_rows()
        draft, id_map = self._draft_rows(target)
        ids = self._draft_ids(target, draft, id_map)
        if self._takes_logsumexps() and self.has("logsumexp", 0.3):
            self._supply_logsumexps(target, draft)
        else:
            self.params |= processing_params(self.rng, self.features, target, ids)
            self.params |= logprobs_params(self.rng, self.features, self.vocab_size)
        self._cuts(ids, target)
        if self.has("bad_rows", 0.06):
            self._spoil(target, draft)
        # Every third request gives its logits between two representable values: they must be rounded, to these.
        unrounded = rng.random() < 0.3
        made: dict[str, Json] = {
            "target_logits": to_json(target, self.dtype if unrounded else None),
            "draft_token_ids": ids,
            "params": self.params,
        }
        if draft is not None:
            made["draft_logits"] = to_json(draft, self.draft_dtype if unrounded else None)
        if id_map is not None:
            made["draft_id_map"] = id_map
        return made

    def _method_and_temperature(self) -> None:
        rng, params = self.rng, self.params
        method = str(rng.choice(sorted(METHOD_FEATURES & self.features)))
        zero = method == "greedy"
        if method == "greedy":
            # At temperature 0 the lossless methods are all greedy.
            method = str(rng.choice([m for m in ("standard", "strict", "block") if m in self.features] or ["standard"]))
        elif method in LOSSY_METHODS and self.has("greedy", 0.2):
            zero = True
        if method != "standard" or rng.random() < 0.5:
            params["method"] = method
        if zero:
            params["temperature"] = 0.0
        elif self.has("temperature", 0.7):
            choices = [0.05, 0.3, 0.7, 0.9, 1.0, 1.5, float(rng.uniform(0.2, 3.0)), 40.0, 1e-5]
            weights = [0.05, 0.15, 0.2, 0.1, 0.1, 0.15, 0.2, 0.04, 0.01]
            params["temperature"] = float(rng.choice(choices, p=weights))
        if self.has("draft_temperature", 0.3):
            params["draft_temperature"] = float(rng.choice([0.0, 0.5, 1.0, float(rng.uniform(0.3, 2.0))]))
        if method == "synthetic":
            rates = rng.choice([0.0, 1.0, 0.5, float(rng.random())], size=self.k + int(rng.integers(0, 3)))
            params["synthetic_rates"] = [float(r) for r in rates]
        if method == "typical" and rng.random() < 0.6:
            params["typical_epsilon"], params["typical_delta"] = (
                float(rng.uniform(0.01, 1)),
                float(rng.uniform(0.01, 1)),
            )
        if method == "relaxed":
            params["relaxed_top_n"] = int(rng.integers(1, 8))
            params["relaxed_margin"] = float(rng.choice([0.0, 0.5, 1.0, float(rng.uniform(0.1, 4.0))]))

    def _randomness(self) -> None:
        rng, params = self.rng, self.params
        if not self.has("seedless", 0.05):
            params["seed"] = int(rng.integers(0, 2**64, dtype=np.uint64))
        top = 2**64 - 1 - self.k
        if rng.random() < 0.8:
            choices = [int(rng.integers(0, 5000)), int(rng.integers(2**32, 2**40)), top, 2**32 - 1]
            params["position"] = choices[int(rng.choice(4, p=[0.6, 0.3, 0.05, 0.05]))]
        for name in ("seed", "position"):
            if params.get(name, 0) >= 2**53 or (rng.random() < 0.2 and name in params):
                params[name] = str(params[name])

    def _target_rows(self) -> Logits:
        rng = self.rng
        shape = (self.k + 1, self.vocab_size)
        rows = rng.normal(size=shape) * float(rng.choice([0.3, 1.5, 4.0]))
        kind = rng.random()
        if kind < 0.35:
            rows = np.round(rows * 2) / 2
        elif kind < 0.4:
            rows[:] = 0.75
        elif kind < 0.5:
            rows[np.arange(self.k + 1), rng.integers(0, self.vocab_size, self.k + 1)] += 18.0
        if rng.random() < 0.25:
            dropped = rng.random(shape) < 0.3
            dropped[np.arange(self.k + 1), rng.integers(0, self.vocab_size, self.k + 1)] = False
            rows[dropped] = -np.inf
        return round_logits(rows, self.dtype)

    def _draft_rows(self, target: Logits) -> tuple[Logits | None, list[int] | None]:
        """Rows near the target's, over the same vocabulary, a smaller or larger one, or a mapped subset of it."""
        rng = self.rng
        if self.k == 0 or rng.random() < 0.3:
            return None, None
        finite = np.where(np.isfinite(target[: self.k]), target[: self.k], -1.0).astype(np.float64)
        rows = finite + rng.normal(size=finite.shape) * float(rng.choice([0.0, 0.1, 0.3, 1.0, 3.0]))
        id_map: list[int] | None = None
        if self.has("vocabularies", 0.45):
            kind = rng.integers(0, 3)
            size = int(rng.integers(1, self.vocab_size + 1))
            if kind == 0:
                rows = rows[:, :size]
            elif kind == 1:
                rows = np.hstack([rows, rng.normal(size=(self.k, int(rng.integers(1, 5))))])
            else:
                id_map = [int(i) for i in rng.permutation(self.vocab_size)[:size]]
                rows = rows[:, id_map]
        if rng.random() < 0.2:  # a client that filtered its draft distribution
            rows[rows < np.max(rows, axis=1, keepdims=True) - 1.0] = -np.inf
        return round_logits(rows, self.draft_dtype), id_map

    def _draft_ids(self, target: Logits, draft: Logits | None, id_map: list[int] | None) -> list[int]:
        ids: list[int] = []
        for j in range(self.k):
            if draft is None:
                q = softmax(target[j], 1.0 if self.rng.random() < 0.5 else 0.05)
                ids.append(int(np.searchsorted(np.cumsum(q), self.rng.random() * 0.999)))
                continue
            column = self._draw(self._q(draft[j]), j)
            ids.append(column if id_map is None else id_map[column])
        if self.k and self.has("placeholders", 0.15):
            first = int(self.rng.integers(0, self.k))
            ids[first] = PLACEHOLDER
            if self.rng.random() < 0.7:
                ids[first:] = [PLACEHOLDER] * (self.k - first)
        return ids

    def _q(self, row: Logits) -> Floats:
        """[V_d] by column: what the draft side sampled from; the argmax at draft temperature 0."""
        given = self.params.get("draft_temperature")
        temperature = float(self.params.get("temperature", 1.0) if given is None else given)
        if temperature == 0.0:
            q = np.zeros(len(row))
            q[int(np.argmax(row))] = 1.0
            return q
        return softmax(row, temperature)

    def _draw(self, q: Floats, j: int) -> int:
        """Inverse CDF with the draft side's uniform (over columns: the order is the draft side's own affair)."""
        u = philox.draft_uniform(int(self.params.get("seed", 0)), int(self.params.get("position", 0)), j)
        ids = np.flatnonzero(q)
        prefix = np.cumsum(q[ids])
        return int(ids[min(int(np.searchsorted(prefix, u * prefix[-1], side="right")), len(ids) - 1)])

    def _takes_logsumexps(self) -> bool:
        tempered = float(self.params.get("temperature", 1.0)) > 0.0
        return tempered and self.params.get("method", "standard") == "standard"

    def _supply_logsumexps(self, target: Logits, draft: Logits | None) -> None:
        """True ones, now and then one that is off by far more than is tolerated."""
        params, t = self.params, float(self.params.get("temperature", 1.0))
        params["target_logsumexp"] = [log_sum_exp(row, t) for row in target]
        draft_t = float(params.get("draft_temperature", t))
        if draft is not None and draft_t > 0.0:
            params["draft_logsumexp"] = [log_sum_exp(row, draft_t) for row in draft]
        if self.rng.random() < 0.2:
            params["target_logsumexp"][int(self.rng.integers(0, self.k + 1))] += 0.1
        params["ranks"] = False
        modes = ["processed_logprobs", "processed_logits", "raw_logits", *(["raw_logprobs"] if t == 1.0 else [])]
        wanted = modes if "logprobs_modes" in self.features else []
        params["logprobs_modes"] = [m for m in wanted if self.rng.random() < 0.6]

    def _cuts(self, ids: list[int], target: Logits) -> None:
        rng, params = self.rng, self.params
        if self.has("stop", 0.3) or "min_tokens" in params:
            likely = [i for i in ids if 0 <= i < self.vocab_size] + [int(np.argmax(row)) for row in target]
            stops = {int(rng.choice(likely)), int(rng.integers(0, self.vocab_size))}
            params["stop_token_ids"] = sorted(stops)
        if self.has("max_tokens", 0.25):
            params["max_tokens"] = int(rng.integers(1, self.k + 4))
        if self.has("acceptance_probabilities", 0.3) and params.get("method", "standard") in ("standard", "block"):
            params["acceptance_probabilities"] = True

    def _spoil(self, target: Logits, draft: Logits | None) -> None:
        """One bad row, needed or not."""
        rows = draft if draft is not None and self.rng.random() < 0.4 else target
        row = int(self.rng.integers(0, len(rows)))
        # With supplied log-sum-exps only some logits are read, so that a single bad one may go unseen.
        whole = self.rng.random() < 0.3 or "target_logsumexp" in self.params
        value = float(self.rng.choice([np.nan, np.inf, -np.inf] if whole else [np.nan, np.inf]))
        if whole:
            rows[row] = value
        else:
            rows[row, int(self.rng.integers(0, rows.shape[1]))] = value


def to_json(rows: Logits, off_grid_of: str | None = None) -> list[list[float | str]]:
    """Rows of numbers, non-finite ones as strings; each moved by less than half a step of a dtype, if one is named."""
    names = {math.inf: "inf", -math.inf: "-inf"}
    factor = 1.0 if off_grid_of is None else 1.0 + _LESS_THAN_HALF_A_STEP[off_grid_of]
    return [
        [x if math.isfinite(x) else names.get(x, "nan") for x in row]
        for row in (rows.astype(np.float64) * factor).tolist()
    ]
