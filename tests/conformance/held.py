"""What a backend makes of the pack, and how that differs from what is expected."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

from sampler_client.stepfile.run import answer
from sampler_service.engine import Engine
from sampler_service.inprocess import InProcess
from tests.conformance.pack import EXPECTED, PACK, STEPS, read
from tests.oracle.request import Json


def _tool() -> ModuleType:
    """The pack's own comparison, which is no module of a package."""
    spec = spec_from_file_location("conformance_compare", PACK / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


COMPARE = _tool()


def results_of(name: str, backend: str) -> list[dict[str, Json]]:
    """The results of a file's steps, in process."""
    verify = InProcess(Engine.of(backend)).verify
    return [json.loads(answer(step, verify)[0]) for step in read(STEPS / f"{name}.jsonl")]


def differences(name: str, results: Sequence[Json]) -> list[str]:
    """How results differ from what the pack expects of a file."""
    expected = read(EXPECTED / f"{name}.jsonl")
    assert len(expected) == len(results) > 0
    return list(COMPARE.differences(expected, list(results), name))


def complaints(name: str, backend: str) -> list[str]:
    """What is wrong with a backend by a file of the pack."""
    return differences(name, results_of(name, backend))
