"""What a placer finds on a problem at one grain: with every budget and seed, and the processor time that it takes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from evaluation.studies.pieces import PIECES, SavedJob
from evaluation.studies.problems import captured, tied
from evaluation.studies.timed_plans import timed_plan
from graphs.foundation import by_name
from graphs.load import load_cluster
from graphs.problem import Problem
from graphs.suites import suite_specs
from placers.contract.placer import Placer

OPS = 0  # the grain of units as they are captured, op by op


class Size(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The size of a study."""

    suites: str
    placer: str
    budgets: tuple[int, ...]
    seeds: int


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A placement."""

    budget: int
    seed: int
    cpu_seconds: float  # of the placer
    step_seconds: float
    fits: bool


class Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All placements of a problem at one grain, under one order."""

    problem: str
    order: str
    grain: int  # op groups that were asked for, or OPS
    ops: int
    units: int
    grouping_seconds: float  # of the processor
    trials: tuple[Trial, ...]  # none where so many groups are more than the units: then they are those of OPS


def jobs(out: Path, size: Size, grains: Sequence[int], orders: Sequence[str]) -> list[SavedJob]:
    """A job per problem, order and grain, graph by graph. Raises InputError for an unknown suite."""
    return [
        SavedJob(out / PIECES / f"{number:03d}-{order}-{grain}.json", partial(measured, *pair, order, grain, size))
        for number, pair in enumerate(suite_specs(size.suites))
        for order in orders
        for grain in grains
    ]


def measured(graph: str, cluster: str, order: str, grain: int, size: Size) -> Measured:
    """Place a graph on a cluster, both by their specs."""
    ops = captured(graph)
    is_coarser = grain != OPS and grain < ops.num_units
    started = time.process_time()
    units = tied(graph, grain) if is_coarser else ops
    grouping_seconds = time.process_time() - started
    problem = Problem(units, load_cluster(cluster), order=order)
    trials: list[Trial] = []
    if is_coarser or grain == OPS:
        placer: Placer = by_name.build("placers", size.placer)
        placer.place(problem, seed=0, budget=1)  # compiles, and derives what all searches of the problem share
        trials = [trial(placer, problem, budget, seed) for budget in size.budgets for seed in range(size.seeds)]
    return Measured(
        problem=f"{graph}@{cluster}", order=order, grain=grain, ops=len(ops), units=units.num_units,
        grouping_seconds=grouping_seconds, trials=tuple(trials),
    )  # fmt: skip


def trial(placer: Placer, problem: Problem, budget: int, seed: int) -> Trial:
    """One placement, timed and simulated; a plan runs in its own order, if it has one."""
    _, step, cpu_seconds = timed_plan(placer, problem, budget, seed)
    return Trial(budget, seed, cpu_seconds, step.step_seconds, step.fits)
