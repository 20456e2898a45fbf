"""The example engine as `engine`, as its own script sees it, and models trained once for all tests."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT)]

from engine.corpus import Corpus, load_corpus  # noqa: E402
from engine.models import Models, train  # noqa: E402


@pytest.fixture(scope="session")
def corpus() -> Corpus:
    return load_corpus()


@pytest.fixture(scope="session")
def models(corpus: Corpus) -> Models:
    return train(corpus)
