"""Every benchmark that this machine can run; each writes its figures to ``results/`` as data.

make bench                  all of them, several minutes
make bench ARGS=service     some: cpu_step, service, gpu_first
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from torch.cuda import is_available as has_gpu

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = (".", "kernels", "clients/python", "clients/loadtest")

BENCHMARKS: Final = ("cpu_step", "service", "gpu_first")
NEEDS_GPU: Final = frozenset({"gpu_first"})


def run(name: str) -> int:
    """Runs one benchmark in a process of its own, so that none finds the memory and threads of another."""
    paths = [str(ROOT / package) for package in PACKAGES]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}
    print(f"--- {name}", flush=True)
    return subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=ROOT, env=env, check=False).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs those asked for; returns the exit status, 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    names = parser.parse_args(arguments).names
    if unknown := set(names) - set(BENCHMARKS):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    failed = []
    for name in names or BENCHMARKS:
        if name in NEEDS_GPU and not has_gpu():
            print(f"--- {name}: left out, no NVIDIA GPU here", flush=True)
        elif run(name):
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
