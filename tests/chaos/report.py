"""What a fault test did, and what it found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

Tick = Callable[[], None]


@dataclass
class Report:
    """Filled by one fault test while it runs.

    Attributes:
        done: How often each thing was done.
        measured: What was measured: the largest value seen, as text, with the bound that it was held to.
        findings: What should not have happened; empty if all is well.
        tick: Called for each unit of the work that the test was asked for.
    """

    done: Counter[str] = field(default_factory=Counter)
    measured: dict[str, str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    tick: Tick = lambda: None
    _largest: dict[str, float] = field(default_factory=dict)

    def expect(self, holds: bool, finding: str) -> bool:
        """Note a finding unless something holds."""
        if not holds:
            self.findings.append(finding)
        return holds

    def at_most(self, what: str, value: float, bound: float, unit: str) -> None:
        """Note a measurement, and a finding if it lies above its bound."""
        largest = self._largest[what] = max(value, self._largest.get(what, value))
        self.measured[what] = f"{largest:.3g} of at most {bound:.3g} {unit}".rstrip()
        self.expect(value <= bound, f"{what}: {value:.4g} {unit}, more than {bound:.4g}")
