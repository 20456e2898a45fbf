"""The eight published transcripts, decoded over a stream: what the service returns is what was published."""

from __future__ import annotations

import numpy as np
import torch

from sampler_client import LogprobsMode, SamplerClient, SamplingParams, Step
from tests.kernels.transcripts import VOCAB_SIZE, Position, transcripts
from tests.service.serving import ServerProcess

TOLERANCE = 5e-4
"""As of the same transcripts in process: three logprobs rounded to 3 decimals."""
K = 4


def test_transcripts_over_a_stream(served: ServerProcess) -> None:
    """All eight in one batch; the second draft of every window is wrong, so each step takes one draft and mends one."""
    texts = transcripts()
    done = [0] * len(texts)
    with SamplerClient(served.address) as client, client.session() as session:
        while active := [t for t, text in enumerate(texts) if done[t] < len(text)]:
            windows = [texts[t][done[t] : done[t] + K + 1] for t in active]
            result = session.verify(_step(windows, active, [done[t] for t in active]))
            for t, window, request in zip(active, windows, result.requests, strict=True):
                emitted = window[:2]
                assert request.num_accepted == len(emitted) - 1
                assert request.token_ids.tolist() == [position.ids[0] for position in emitted]
                logprobs = request.logprobs[LogprobsMode.RAW_LOGPROBS]
                assert [top.token_ids.tolist() for top in logprobs.top] == [list(position.ids) for position in emitted]
                published = np.array([position.logprobs for position in emitted])
                told = np.array([top.values for top in logprobs.top])
                np.testing.assert_allclose(told, published, atol=TOLERANCE, rtol=0)
                np.testing.assert_allclose(logprobs.values, published[:, 0], atol=TOLERANCE, rtol=0)
                done[t] += len(emitted)
    assert sum(done) == 359


def _step(windows: list[tuple[Position, ...]], seeds: list[int], positions: list[int]) -> Step:
    drafts = [
        [position.ids[0] if j != 1 else (position.ids[0] + 1) % VOCAB_SIZE for j, position in enumerate(window[:-1])]
        for window in windows
    ]
    return Step(
        target_logits=torch.stack([position.row() for window in windows for position in window]).numpy(),
        draft_lengths=[len(ids) for ids in drafts],
        draft_token_ids=[token for ids in drafts for token in ids],
        params=[SamplingParams(temperature=0, top_logprobs=3)],
        seeds=seeds,
        positions=positions,
    )
