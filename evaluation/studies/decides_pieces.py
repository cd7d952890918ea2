"""The pieces of the study of what decides: the cheap placers, and each variant trained and judged with each seed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from envs.placer_result import PlacerResult
from evaluation.compare import compare
from evaluation.record import Record
from evaluation.studies.captures import training_problems
from evaluation.studies.decides_problems import held_out_problems
from evaluation.studies.decides_variants import BASE, Settings, recipe_of
from evaluation.studies.pieces import do_pieces, load_pieces, trained
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.learned.policy_file import load_meta
from placers.learned.sequential.policy import HIGHEST_FILL, SequentialPolicy
from training.checkpoint import TRAINER

CHEAP = ("heft", "human_expert", "metis")
RIVALS = "cheap"  # the piece of those; all others are of variants
GREEDY, BEST = "greedy", "best"  # names in records: the greedy placement, and the best of several
PASSES = (1, 2, 3, 4)  # over all units, of the base's greedy placement


class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one piece of work gave."""

    variant: str  # or RIVALS
    seed: int
    records: tuple[Record, ...]
    training_seconds: float | None = None  # wall clock; None if nothing was trained, or it was stopped and went on
    simulations: int = 0  # of the training, search for what is imitated included


@dataclass(frozen=True, eq=False)
class AfterPasses:
    """The greedy placement of a sequential policy after so many passes."""

    policy: SequentialPolicy
    passes: int

    @property
    def name(self) -> str:
        """In records."""
        return passes_name(self.passes)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002  # nothing is tried
        """Without a simulation."""
        batch = self.policy.stack([self.policy.view(problem)])
        after = self.policy.decode(batch, np.ones(1), np.full(1, HIGHEST_FILL), seed, passes=self.passes)
        return PlacerResult.of_units(problem, after[-1, 0], self.name, seed)


def passes_name(passes: int) -> str:
    """What names it in records."""
    return f"after {passes}"


def do_all(out: Path, size: Settings, variants: Sequence[str], seeds: int) -> None:
    """Do the pieces that are not done yet, seed by seed. Raises InputError if the folder is of another size."""
    works = [(RIVALS, 0), *((variant, seed) for seed in range(seeds) for variant in variants)]
    shop = Workshop(out, size)
    do_pieces(out, size, {f"{variant}-{seed}.json": partial(shop.do, variant, seed) for variant, seed in works})


def load_all(out: Path) -> tuple[Settings, list[Piece]]:
    """What the study has done so far. Raises InputError for a folder without one, or a damaged piece."""
    return load_pieces(out, Settings, Piece)


@dataclass(frozen=True)
class Workshop:
    """Does the pieces."""

    out: Path
    size: Settings

    def do(self, variant: str, seed: int) -> Piece:
        """One piece of work."""
        if variant == RIVALS:
            return Piece(variant=variant, seed=seed, records=self._placed(list(CHEAP), {}, seed))
        recipe, folder = recipe_of(variant, self.size), self.out / "runs" / f"{variant}-{seed}"
        problems = training_problems(recipe.problems, seed)
        whole = not (folder / TRAINER).exists()
        started = time.perf_counter()
        placer = trained(recipe, problems, folder, seed)
        seconds = time.perf_counter() - started
        judged: list[Placer | str] = [replace(placer, name=GREEDY, samples=1), replace(placer, name=BEST, samples=0)]
        if variant == BASE and isinstance(placer.policy, SequentialPolicy):
            judged += [AfterPasses(placer.policy, passes) for passes in PASSES]
        return Piece(
            variant=variant,
            seed=seed,
            records=self._placed(judged, {BEST: self.size.choices}, seed),
            training_seconds=seconds if whole else None,
            simulations=load_meta(folder).simulations,
        )

    def _placed(self, placers: Sequence[Placer | str], budgets: dict[str, int], seed: int) -> tuple[Record, ...]:
        """Records of placers on the test problems, with one simulation unless told otherwise."""
        problems = held_out_problems(self.size.unseen_graphs)
        done = compare(placers, problems, budget=budgets, seeds=(seed,), quiet=True)
        if done.failures:
            raise InputError(f"{done.failures[0].placer} on {done.failures[0].problem}: {done.failures[0].reason}")
        return done.records
