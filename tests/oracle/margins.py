"""How close each decision came to going the other way.

Two correct backends may differ where a real-valued comparison lies within rounding of its threshold. The oracle
therefore records the distance of every such comparison, in the units the decision is made in (probability or mass).
Exact comparisons (argmax, ranks, top-k places, given rates) have no margin and are not recorded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

FILTERS = ("min_p", "top_p")
"""Names whose decision changes processed logprobs even when the emitted tokens are the same."""


@dataclass(frozen=True)
class Margin:
    """The distance of one decision to its threshold."""

    distance: float
    decision: str


@dataclass
class Margins:
    """Every margin of one request's step."""

    recorded: list[Margin] = field(default_factory=list)

    def add(self, name: str, row: int, distance: float) -> None:
        """Record the decision `name` at target row `row`."""
        self.recorded.append(Margin(abs(distance), f"{name} at row {row}"))

    def smallest(self, names: tuple[str, ...] | None = None) -> Margin:
        """The smallest margin, of all decisions or of those whose name is in `names`."""
        chosen = [m for m in self.recorded if names is None or m.decision.split(" at row ")[0] in names]
        return min(chosen, key=lambda m: m.distance, default=Margin(math.inf, "none"))
