"""Every benchmark that this machine can run; each writes its figures to ``results/`` as data."""

from __future__ import annotations

from benchmarks import cpu_step

if __name__ == "__main__":
    cpu_step.main()
