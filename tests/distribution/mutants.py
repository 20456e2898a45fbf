"""Proof that the checks can fail: known faults are planted one by one, and each has to be caught.

``python tests/distribution/mutants.py`` plants all and prints a table; its exit status is 1 if one was missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from importlib import import_module

import pytest
import torch

from sampler_kernels.batch import MethodCode
from sampler_kernels.philox.reference import Purpose
from tests.conformance.held import complaints as rule_complaints
from tests.distribution import faults, harness, probes
from tests.distribution.cases import CASES
from tests.distribution.harness import laws, waits_for
from tests.distribution.mutant import RULE, Mutant
from tests.distribution.planting import both, in_backend, in_draw, in_plan, in_uniforms, with_counter
from tests.distribution.rule_mutants import RULE_MUTANTS
from tests.docs.philox import uniform

SEEDS = 100_000
LENGTH = 4
"""Tokens of each sequence: more than one step of the cases' k = 3 is certain to span if a token falls."""

Check = Callable[[str, int], list[str]]
"""(backend, seeds) -> what went wrong."""

PROBES: dict[str, Check] = {
    "uniforms": lambda backend, _: probes.uniforms(backend),
    "rare rejections": lambda backend, _: probes.rare_rejections(backend),
    "impossible drafts": lambda backend, _: probes.impossible_drafts(backend),
    "ties": lambda backend, _: probes.ties(backend),
}


def _accepts_at_equality(patch: pytest.MonkeyPatch) -> None:
    rules = import_module("sampler_kernels.rejection.reference").RULES
    patch.setitem(rules, MethodCode.STANDARD, faults.accepts_at_equality)


def _drafts_without_s(patch: pytest.MonkeyPatch) -> None:
    # An engine follows the same formula; with s on its side alone, 100,000 seeds would not be enough to see the fault.
    patch.setattr(harness, "uniform", lambda seeds, positions, purpose, _: uniform(seeds, positions, purpose, 0))


MUTANTS = (
    *RULE_MUTANTS,
    Mutant(
        "draft logits unscaled",
        "q is not what the drafts were drawn from",
        in_plan(faults.unscaled_draft_logits),
        ("temperature 0.7", "draft temperature 0.5"),
    ),
    Mutant(
        "draft_temperature ignored",
        "q at the target's temperature",
        in_plan(faults.draft_temperature_ignored),
        ("draft temperature 0.5", "temperature 0.8, draft temperature 0.5"),
    ),
    Mutant(
        "accept test at temperature 1",
        "p(x) of another law than the draws",
        in_backend(faults.rejection_at_temperature_1),
        ("temperature 0.7",),
    ),
    Mutant("draft_id_map ignored", "q of other ids", in_plan(faults.map_ignored), ("id map",)),
    Mutant(
        "uniform used twice",
        "the draw knows how the accept test came out",
        in_uniforms(with_counter(purpose=Purpose.ACCEPT), "draw"),
        ("uniforms", "fp32", "point mass"),
    ),
    Mutant(
        "accept test with the draft side's uniform",
        "whether a token stands depends on which one was drawn",
        in_uniforms(with_counter(purpose=Purpose.DRAFT), "rejection"),
        ("uniforms", "fp32"),
    ),
    Mutant(
        "s left out of the counter",
        "block verification meets uniforms that decided already",
        both(in_uniforms(with_counter(keeps_s=False), "rejection"), _drafts_without_s),
        ("uniforms", "block"),
        # 100,000 seeds take the second token's chi-square from 15 to about 89, where the limit is 70.
        times=5,
    ),
    Mutant(
        "high word of the position dropped",
        "uniforms repeat after 2^32 tokens",
        in_uniforms(with_counter(position_mask=faults.LOW_WORD), "rejection", "draw"),
        ("uniforms",),
    ),
    Mutant(
        "high word of the seed dropped",
        "seeds that differ there give the same tokens",
        in_uniforms(with_counter(seed_mask=faults.LOW_WORD), "rejection", "draw"),
        ("uniforms",),
    ),
    Mutant(
        "position not advanced by j in the accept test",
        "not the uniform of the position",
        in_uniforms(faults.position_stays_at_accept, "rejection"),
        ("uniforms",),
    ),
    Mutant(
        "position not advanced by t in the draw",
        "a uniform may be used in two steps",
        in_draw(faults.position_stays_at_draw),
        ("uniforms",),
    ),
    Mutant(
        "residual that leaves out the draft token only",
        "what the draft overrates comes too often",
        in_draw(faults.residual_without_draft_token_only),
        ("fp32", "draft = -target", "wide fp32"),
    ),
    Mutant(
        "residual's mass by subtraction",
        "only rounding is left where p(x) is near 1",
        in_backend(faults.mass_subtracted),
        ("rare rejections",),
    ),
    Mutant(
        "rejected position drawn from p",
        "what the draft overrates comes too often",
        in_draw(faults.redrawn_from_p),
        ("fp32", "point mass", "draft = -target"),
    ),
    Mutant(
        "placeholder drawn from a residual",
        "a row without a draft token loses q",
        in_draw(faults.placeholder_redrawn_from_residual),
        ("padded with -1",),
    ),
    Mutant(
        "bonus token from the row before",
        "the token after the last draft token follows the wrong context",
        in_draw(faults.bonus_from_the_row_before),
        ("fp32",),
    ),
    Mutant(
        "ties to the highest id",
        "greedy differs from decoding with the target alone",
        both(in_plan(faults.highest_id_at_ties), in_backend(faults.ids_turned_back)),
        ("ties",),
    ),
    Mutant("<= in the accept test", "a token of p = 0 stands", _accepts_at_equality, ("impossible drafts",)),
)


def complaints(check: str, seeds: int) -> list[str]:
    """What a check has to say about the CPU backend as it is now."""
    if check in PROBES:
        return PROBES[check]("cpu", seeds)
    if check.startswith(RULE):
        return rule_complaints(check.removeprefix(RULE), "cpu")
    case = CASES[check]
    wide = case.vocab_size // 256 or 1
    length = 1 if case.classes == 1 else 3 if case.prompt is not None else LENGTH
    return [str(fit) for fit in laws(case, seeds=seeds // min(wide, 5), length=length, backend="cpu") if not fit.holds]


def waits(check: str) -> str | None:
    """What has to be built before a check can run; None if it can."""
    return waits_for(CASES[check]) if check in CASES else None


def verdicts(mutant: Mutant, seeds: int) -> Iterator[tuple[str, str, str]]:
    """(check, ``caught`` / ``MISSED`` / ``waits``, why) for each check that has to notice the fault."""
    for check in mutant.caught_by:
        waiting = waits(check)
        if waiting:
            yield check, "waits", waiting
            continue
        with pytest.MonkeyPatch.context() as patch:
            mutant.plant(patch)
            found = complaints(check, seeds * mutant.times)
        yield check, "caught" if found else "MISSED", found[0] if found else ""


def main() -> int:
    """Plant all, and print what came of it."""
    parser = argparse.ArgumentParser(description="Plants known faults in the CPU backend; each has to be caught.")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="sequences of each law (default %(default)s)")
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)  # Operations are small here: more threads wait for each other, and for a busy machine.
    checks = sorted({check for mutant in MUTANTS for check in mutant.caught_by if not waits(check)})
    false_alarms = [check for check in checks if complaints(check, seeds)]
    missed = len(false_alarms)
    for check in false_alarms:
        print(f"complains without a fault: {check}")
    for mutant in MUTANTS:
        print(f"{mutant.name}: {mutant.breaks}", flush=True)
        for check, verdict, why in verdicts(mutant, seeds):
            missed += verdict == "MISSED"
            print(f"    {verdict:<6}  {check:<40}  {why[:140]}", flush=True)
    print("every fault was caught" if not missed else f"{missed} missed or false")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
