"""One planted fault, and what has to notice it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.distribution.planting import Plant

RULE = "rule "
"""Before the name of a file of the conformance pack."""


@dataclass(frozen=True)
class Mutant:
    """One planted fault.

    Attributes:
        name: What is done wrong.
        breaks: What comes of it.
        plant: Plants it, for as long as the patch lasts.
        caught_by: Every check that has to notice, each by itself: a probe or the law of a case by its
            name, or ``rule NAME``, a file of the conformance pack.
        times: How many times as many seeds as for other faults it takes to see this one.
    """

    name: str
    breaks: str
    plant: Plant
    caught_by: tuple[str, ...]
    times: int = 1
