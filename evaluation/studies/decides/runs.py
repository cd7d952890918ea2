"""The work of the study of what decides: the cheap placers, and each variant trained and tested with each seed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from envs.placer_result import PlacerResult
from evaluation.record import Record
from evaluation.studies.cheap_placers import FEW_CHEAP
from evaluation.studies.comparisons import placed, trained
from evaluation.studies.decides.variants import BASE, CLUSTERS, FAMILIES, GROUPS, DecidesSize, recipe_of
from evaluation.studies.pieces import PIECES, SavedJob
from evaluation.studies.problems import captured_problems, training_problems
from graphs.problem import Problem
from graphs.splits import split
from placers.contract.placer import Placer
from placers.learned.policy_meta import load_meta
from placers.learned.sequential.policy import SequentialPolicy
from training.checkpoint import TRAINER

CHEAP = "cheap"  # the piece of the cheap placers; all others are of variants
UNSEEN = "nmt"  # never trained on
GREEDY, BEST = "greedy", "best"  # names in records: the greedy placement, and the best of several
PASSES = (1, 2, 3, 4)  # over all units, of the base's greedy placement


class VariantResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a variant gave with a seed, or the cheap placers."""

    variant: str  # or CHEAP
    seed: int
    records: tuple[Record, ...]
    training_seconds: float | None = None  # wall clock; None if nothing was trained, or it was stopped and resumed
    simulations: int = 0  # of the training, search for what is imitated included


@dataclass(frozen=True, eq=False)
class AfterPasses:
    """The greedy placement of a sequential policy after this number of passes."""

    policy: SequentialPolicy
    passes: int

    @property
    def name(self) -> str:
        """In records."""
        return passes_name(self.passes)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002  # nothing is simulated
        """Without a simulation."""
        batch = self.policy.stack([self.policy.view(problem)])
        after = self.policy.decode(batch, np.ones(1), np.full(1, self.policy.fills[0]), seed, passes=self.passes)
        return PlacerResult.of_units(problem, after[-1, 0], self.name, seed)


def passes_name(passes: int) -> str:
    """What names it in records."""
    return f"after {passes}"


def pieces(out: Path, size: DecidesSize, variants: Sequence[str], seeds: int) -> list[SavedJob]:
    """The work of a study, seed by seed."""
    works = [
        (variant, seed, partial(_of_variant, variant, seed, out, size)) for seed in range(seeds) for variant in variants
    ]
    every = [(CHEAP, 0, partial(_of_cheap_placers, size)), *works]
    return [SavedJob(out / PIECES / f"{name}-{seed}.json", work) for name, seed, work in every]


def held_out_problems(unseen_graphs: int) -> list[Problem]:
    """The test graphs of the families, and some of the family that is never trained on, on each cluster."""
    specs = [*split(FAMILIES, "test"), *split([UNSEEN], "test")[:unseen_graphs]]
    return captured_problems(specs, CLUSTERS, GROUPS, "problems to judge by")


def _of_cheap_placers(size: DecidesSize) -> VariantResult:
    records = placed(FEW_CHEAP, held_out_problems(size.unseen_graphs), {}, 0)
    return VariantResult(variant=CHEAP, seed=0, records=records)


def _of_variant(variant: str, seed: int, out: Path, size: DecidesSize) -> VariantResult:
    recipe, folder = recipe_of(variant, size), out / "runs" / f"{variant}-{seed}"
    problems = training_problems(recipe.problems, seed)
    whole = not (folder / TRAINER).exists()
    started = time.perf_counter()
    placer = trained(recipe, problems, folder, seed)
    seconds = time.perf_counter() - started
    judged: list[Placer | str] = [replace(placer, name=GREEDY, samples=1), replace(placer, name=BEST, samples=0)]
    if variant == BASE and isinstance(placer.policy, SequentialPolicy):
        judged += [AfterPasses(placer.policy, passes) for passes in PASSES]
    return VariantResult(
        variant=variant,
        seed=seed,
        records=placed(judged, held_out_problems(size.unseen_graphs), {BEST: size.choices}, seed),
        training_seconds=seconds if whole else None,
        simulations=load_meta(folder).simulations,
    )
