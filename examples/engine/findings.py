"""Everything that a demo found, for either view of it."""

from dataclasses import dataclass

from engine.checks import Check
from engine.corpus import Corpus
from engine.models import Models
from engine.runs import Run


@dataclass(frozen=True)
class Findings:
    """`shown` is the run whose tokens are listed one by one, `other` the one at the other temperature."""

    corpus: Corpus
    models: Models
    service: str
    shown: Run
    other: Run
    checks: list[Check]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)


def percentiles_ms(seconds: tuple[float, ...]) -> dict[str, float]:
    """Nearest-rank percentiles of `seconds`, at least one, in milliseconds."""
    ordered = sorted(seconds)
    # Nearest rank: the smallest value with at least that share of all values at or below it.
    picked = {f"p{q}": ordered[-(-q * len(ordered) // 100) - 1] for q in (50, 90, 99)}
    return {name: value * 1e3 for name, value in {**picked, "max": ordered[-1]}.items()}
