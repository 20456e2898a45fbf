"""A plain verification step in numpy, one request after another, to test the engine's loop without a service."""

from collections.abc import Sequence

import numpy as np

from engine.arrays import Floats, Ints, Logits
from engine.randomness import philox, softmax
from engine.verifier import EmittedToken, Params, Step, TopEntry, Verified

ACCEPT, DRAW = 0, 1


class FakeVerifier:
    """Greedy and standard verification. `steps` keeps what the engine sent."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def verify(self, step: Step) -> Sequence[Verified]:
        self.steps.append(step)
        ends = np.cumsum(step.draft_lengths)
        results = []
        for r, (length, end) in enumerate(zip(step.draft_lengths, ends, strict=True)):
            rows = step.target_logits[end - length + r : end + r + 1]
            draft_rows = None if step.draft_logits is None else step.draft_logits[end - length : end]
            drafts = step.draft_token_ids[end - length : end]
            seed, position = int(step.seeds[r]), int(step.positions[r])
            results.append(self._request(rows, draft_rows, drafts, seed, position, step.params))
        return results

    def _request(
        self, rows: Logits, draft_rows: Logits | None, drafts: Ints, seed: int, position: int, params: Params
    ) -> Verified:
        if params.temperature == 0:
            best = rows.argmax(axis=-1)
            accepted = int(np.cumprod(drafts == best[:-1]).sum())
            tokens = best[: accepted + 1].tolist()
        else:
            accepted, last = self._standard(rows, draft_rows, drafts, seed, position, params.temperature)
            tokens = [*drafts[:accepted].tolist(), last]
        pairs = zip(rows, tokens, strict=False)
        return Verified(tuple(_described(row, token, params.top_logprobs) for row, token in pairs), accepted)

    def _standard(
        self, rows: Logits, draft_rows: Logits | None, drafts: Ints, seed: int, position: int, temperature: float
    ) -> tuple[int, int]:
        assert draft_rows is not None or not len(drafts)
        p = softmax(rows, temperature)
        q = np.zeros((0, rows.shape[1])) if draft_rows is None else softmax(draft_rows, temperature)
        accepted = 0
        for x in drafts:
            if not _uniform(seed, position + accepted, ACCEPT, accepted) * q[accepted, x] < p[accepted, x]:
                break
            accepted += 1
        weights = p[accepted] if accepted == len(drafts) else self.residual(p[accepted], q[accepted])
        return accepted, _inverse_cdf(weights, _uniform(seed, position + accepted, DRAW, 0))

    def residual(self, p: Floats, q: Floats) -> Floats:
        """What a rejected position is drawn from; tests put faults here."""
        return np.maximum(p - q, 0)


def _uniform(seed: int, position: int, purpose: int, s: int) -> float:
    low = 2**32 - 1
    counter = np.array([position & low, position >> 32, purpose, s], np.uint64)
    w0, w1, *_ = philox(counter, np.array([seed & low, seed >> 32], np.uint64)).tolist()
    return float((((w0 << 32 | w1) >> 12) + 0.5) * 2.0**-52)


def _inverse_cdf(weights: Floats, u: float) -> int:
    prefix = weights.cumsum()
    return int((prefix > u * prefix[-1]).argmax())


def _described(row: Logits, token: int, top: int) -> EmittedToken:
    logprobs = np.log(softmax(row, 1.0))
    best = np.argsort(-row, kind="stable")[:top]
    return EmittedToken(
        token_id=token,
        logprob=float(logprobs[token]),
        rank=int((row >= row[token]).sum()),
        top=tuple(TopEntry(int(i), float(logprobs[i])) for i in best),
    )
