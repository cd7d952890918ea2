"""Annealing from today's starts and from all cheap placers, whatever they take, with equal simulations on a suite."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import msgspec

from envs.plan import Plan
from envs.simulation.simulator import simulate
from evaluation.studies.pieces import PIECES, SavedJob
from evaluation.studies.problems import suite_problems
from evaluation.studies.released.parts import GROUPS
from evaluation.studies.starts.measure import SUITE
from graphs.foundation import by_name
from graphs.problem import Problem
from placers.annealing import Annealing, AnnealingSearch
from placers.search.levels import Levels, levels_of
from placers.search.starts import Asked, Starts, own_simulations, starts, starts_of

ALL = (  # the starts of earlier versions: every search had them all, in this order
    "heft", "human_expert", "single_device", "max_load_dp:ideals=0", "peft", "m_etf", "m_sct", "pipedream", "metis",
    "gpipe:micro_batches=1", "m_topo", "round_robin",
)  # fmt: skip
BUDGETS = (100, 1000)


class Searched(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A search with a budget, from one choice of starts."""

    problem: str
    seed: int
    budget: int
    chosen: bool  # whether from those that are affordable, or from all
    starts: int
    starts_seconds: float  # of the processor
    search_seconds: float  # of the processor, for the rest
    start_seconds: float  # of a step with the best start; infinite if none fits
    step_seconds: float
    fits: bool


class Searches(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All searches on a problem."""

    found: tuple[Searched, ...]


def jobs(out: Path, seeds: int) -> list[SavedJob]:
    """A job per problem of the suite."""
    problems = suite_problems(SUITE, GROUPS).values()
    return [
        SavedJob(out / PIECES / f"{number:02d}.json", partial(searches, build, range(seeds)))
        for number, build in enumerate(problems)
    ]


def searches(build: Callable[[], Problem], seeds: Iterable[int]) -> Searches:
    """Search with every budget and seed, from both choices of starts."""
    problem = build()
    Annealing().place(problem, budget=1000)  # compiles, and derives what all searches of the problem share
    return Searches(
        tuple(
            searched(problem, seed, budget, chosen=chosen)
            for seed in seeds for budget in BUDGETS for chosen in (False, True)
        )
    )  # fmt: skip


def searched(problem: Problem, seed: int, budget: int, *, chosen: bool) -> Searched:
    """What a search finds."""
    began = time.process_time()
    levels = levels_of(problem)
    first = starts(levels, budget, seed) if chosen else all_starts(levels, budget, seed)
    started = time.process_time()
    search = AnnealingSearch(levels, Annealing(), seed, budget, first)
    evaluations = search.evaluations
    start = evaluations.curve[-1][1] if evaluations.curve else float("inf")
    while evaluations.simulations < budget:
        search.step(0.0, budget - evaluations.simulations)
    ended = time.process_time()
    found = simulate(problem, Plan.of_units(problem, evaluations.best, order=evaluations.order))
    return Searched(
        problem.name, seed, budget, chosen, len(first.placements), started - began, ended - started, start,
        found.step_seconds, found.fits,
    )  # fmt: skip


def all_starts(levels: Levels, budget: int, seed: int) -> Starts:
    """Those of all cheap placers, for the units of the problem."""
    own = own_simulations(budget)
    return starts_of([Asked(by_name.build("placers", spec), own, 0) for spec in ALL], levels, budget, seed)
