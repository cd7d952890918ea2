"""Trainings of the study of scaling, each from its start to its end, and what their policies make of new problems."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from evaluation.commands.load_placer import load_placer
from evaluation.comparing.simulated_plan import SimulatedPlan
from graphs.problem import Problem
from placers.contract.placer import Placer
from training.problems.random.random_problem import world_problems
from training.recipe import Recipe, load_recipe
from training.runs.run_folder import RunFolder
from training.runs.train import train

RECIPE = "world"
SMALLER = (  # random problems alone, and fewer of smaller sizes in each update, so that a study is done in hours
    "problems.precision=auto",
    "problems.families=[]",
    "problems.mixed=0",
    "problems.world.units=[8,256]",
    "problems.world.devices=[2,8]",
    "problems.world.pairs=[256,2048]",
    "ppo.problems_per_update=6",
    "ppo.entropy=0.005",
    "ppo.final_entropy=0.0005",
)
IMITATED = 10  # updates of PPO for each of imitation before them
AVERAGED = 30  # weights are averaged over one in so many of the updates
SEED = 1 << 23  # of the problems that are tested on; no training and no validation has it
SAMPLES = 16  # plans, of which the best counts
SEARCHED = 10_000  # simulations of the search that tells how good plans can be
SEARCH, GREEDY, BEST = "annealing", "greedy", f"best of {SAMPLES}"


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Plans for the problems that are tested on, by a trained policy or by a search."""

    updates: int  # of PPO; 0: a search
    seed: int
    simulations: int = 0  # of the training
    update_seconds: float | None = None  # processor seconds of an update with its share of all else in the training;
    # None: not known, since the training was stopped after its last update
    step_seconds: dict[str, list[float | None]]  # (problems,) by how the plans are made; None: a plan does not fit


@dataclass(frozen=True)
class Training:
    """A training of some updates with a learning-rate schedule of its own."""

    updates: int
    seed: int

    @property
    def recipe(self) -> Recipe:
        """The smaller variant of the recipe. Weights are validated once, at the end: nothing is chosen by that."""
        return load_recipe(RECIPE, SMALLER).changed(
            [
                f"ppo.updates={self.updates}",
                f"imitation.updates={self.updates // IMITATED}",
                f"validation.every={self.updates}",
                "validation.problems=1",
                f"validation.averaging={max(1 - AVERAGED / self.updates, 0.0)}",
            ]
        )

    def tested(self, runs: Path, problems: Sequence[Problem]) -> Outcome:
        """Train in a folder of `runs`, or resume there what was stopped, and place the problems."""
        out = runs / f"{self.updates}-{self.seed}"
        folder = RunFolder(out)
        done, began = folder.updates, time.process_time()
        placer = train(self.recipe, out=out, seed=self.seed, resume=folder.is_begun, loggers=())
        seconds = time.process_time() - began
        made = self.updates + self.recipe.imitation.updates - done
        _, counters = folder.read_state()
        return Outcome(
            updates=self.updates, seed=self.seed, simulations=int(counters["simulations"]),
            update_seconds=seconds / made if made > 0 else None,
            step_seconds={GREEDY: _placed(placer, problems, 0), BEST: _placed(placer, problems, SAMPLES)},
        )  # fmt: skip


def searched(seed: int, problems: Sequence[Problem]) -> Outcome:
    """What a search finds."""
    return Outcome(updates=0, seed=seed, step_seconds={SEARCH: _placed(load_placer(SEARCH), problems, SEARCHED, seed)})


def tested_on(number: int) -> list[Problem]:
    """The problems that policies are tested on, of the kinds that the recipe holds out, in turn."""
    chosen = load_recipe(RECIPE, SMALLER).problems
    return world_problems(
        chosen.world.held_out, seed=SEED, count=number, settings=chosen.world, runtimes=chosen.runtimes
    )


def kinds_tested_on(number: int) -> list[str]:
    """The kinds of these problems."""
    kinds = load_recipe(RECIPE).problems.world.held_out
    return [kinds[i % len(kinds)] for i in range(number)]


def _placed(placer: Placer | Any, problems: Iterable[Problem], budget: int, seed: int = 0) -> list[float | None]:
    """Step seconds of a placer's plans, or None where a plan does not fit."""
    plans = (SimulatedPlan.by(placer, problem, seed=seed, budget=budget) for problem in problems)
    return [plan.timeline.step_seconds if plan.timeline.fits else None for plan in plans]
