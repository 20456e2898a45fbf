"""Steps come from the seed alone, fit into their bounds, and are what was asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sampler_client import Method
from sampler_client.codec.request import encode_verify_request
from sampler_loadtest import workload as module
from sampler_loadtest.workload import DTYPES, Workload


def test_equal_seeds_give_equal_steps() -> None:
    def first_three(seed: int) -> list[bytes]:
        return [encode_verify_request(step) for step in Workload(vocab_size=50, seed=seed).steps()[:3]]

    once = first_three(7)
    assert once == first_three(7)
    assert len({*once, *first_three(8)}) == 6


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_shapes_and_dtypes(dtype: str) -> None:
    step = Workload(batch=3, drafts=2, vocab_size=40, dtype=dtype).steps()[0]
    target, draft = np.asarray(step.target_logits), np.asarray(step.draft_blocks[0].logits)
    assert (target.shape, draft.shape) == ((9, 40), (6, 40))
    assert target.dtype == draft.dtype == DTYPES[dtype]
    ids = np.asarray(step.draft_token_ids)
    assert ids.shape == (6,)
    assert ((ids >= 0) & (ids < 40)).all()
    assert step.idempotent


@pytest.mark.parametrize("options", [{"drafts": 0}, {"draft_logits": False}, {"temperature": 0.0}])
def test_steps_without_some_parts(options: dict[str, Any]) -> None:
    step = Workload(vocab_size=20, **options).steps()[0]
    assert len(step.draft_blocks) == (0 if options.keys() & {"drafts", "draft_logits"} else 1)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload(vocab_size=1000)
    monkeypatch.setattr(module, "MOST_BYTES", 3 * workload.logits_bytes)
    assert len(workload.steps()) == 3
    monkeypatch.setattr(module, "MOST_BYTES", 0)
    assert len(workload.steps()) == 1


def test_drafts_are_drawn_from_the_draft_logits() -> None:
    # With a spread of 3 at temperature 0.7 a draft from its own law lies high in its row; one drawn evenly would not.
    steps = Workload(batch=64, vocab_size=100).steps()[:4]
    places = []
    for step in steps:
        rows = np.asarray(step.draft_blocks[0].logits).astype(np.float32)
        chosen = rows[np.arange(len(rows)), np.asarray(step.draft_token_ids)]
        places.append((rows > chosen[:, None]).mean())
    # Even draws have a mean place of 0.5 with a deviation of 0.29 / sqrt(1024) = 0.009.
    assert np.mean(places) < 0.5 - 10 * 0.009


def test_methods_get_the_parameters_they_need() -> None:
    assert Workload(method=Method.SYNTHETIC, drafts=3, acceptance=0.25).params().synthetic_rates == (0.25,) * 3
    assert Workload(method=Method.RELAXED).params().relaxed_top_n is not None
    assert Workload().params().synthetic_rates == ()
