"""Each planted fault is caught by each check that has to see it, with fewer seeds than the command takes."""

from __future__ import annotations

import pytest

from tests.distribution.mutant import Mutant
from tests.distribution.mutants import MUTANTS, PROBES, verdicts

SEEDS = 40_000


@pytest.mark.distribution
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_check_sees_the_fault(mutant: Mutant) -> None:
    found = list(verdicts(mutant, SEEDS))
    assert [check for check, verdict, _ in found if verdict == "MISSED"] == []
    waiting = [f"{check} {why}" for check, verdict, why in found if verdict == "waits"]
    if waiting:
        pytest.skip(f"caught by the rest; not run yet: {', '.join(waiting)}")


def test_every_probe_has_a_fault_that_it_catches() -> None:
    assert set(PROBES) <= {check for mutant in MUTANTS for check in mutant.caught_by}
