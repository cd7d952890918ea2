"""The rows of the study of regimes: problems that are alike in one respect, and what a policy is to gain on them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import NamedTuple, Unpack

import numpy as np

from envs.simulation.simulator import Simulator
from evaluation.commands.arguments import AUTO
from evaluation.commands.problems import asked_runtime
from evaluation.studies.problems import ConditionOptions, Problems, suite_problems
from graphs.problem import Problem
from graphs.runtime import Runtime, runtime_of
from placers.search.first_fit import MOST, first_fit
from training.problems.random.random_memory import saving_plan
from training.problems.random.random_problem import APART, random_problem
from training.problems.random.settings import World

KINDS = ("elimination", "fan", "series_parallel")  # of random graphs; our recipes hold them out
SEED = 1 << 22  # of the random problems; no training and no validation has it
GROUPS = 128  # of captured models
FEWEST = 90  # units of a captured model
CUTS = 0.8, 0.9, 0.95, 0.98  # of the memory with which a plan was found
SIZES, MIXED, MANY_UNITS = (90, 256), (0.02, 10.0), (400, 512)  # where a row says nothing else


class Limit(NamedTuple):
    """Processor seconds that everything has: as many as annealing takes for some simulations, or a number of them."""

    name: str
    simulations: int = 0
    seconds: float = 0.0
    samples: bool = True  # whether policies also draw samples in these, or only begin searches

    @property
    def key(self) -> str:
        """In the names of files."""
        return self.name.replace(" ", "_").replace(",", "")


HUNDRED, THOUSAND = Limit("100 simulations", 100), Limit("1,000 simulations", 1000)
TEN_SECONDS = Limit("10 s", seconds=10.0)
LONG = Limit("long", samples=False)  # of searches that say what plans there are; `Row.limits` has their seconds
LONG_UNITS, LONGEST = 1000, 6  # units for which they have these seconds once, and how many times at most


@dataclass(frozen=True)
class Row:
    """Problems that are alike in one respect."""

    about: str
    settings: World | None = None  # of random problems; None: those of the suite that the row is named after
    goals: Mapping[Limit, float] = field(default_factory=lambda: {HUNDRED: 0.15, THOUSAND: 0.03})
    """By which share steps are to be faster than the best rival's, of each limit; 0: nothing is asked."""
    memory: float = 0.0
    """Of each device, over the least that a search finds a plan for; 0: as it is drawn."""

    def limits(self, long: float) -> list[Limit]:
        """Those of its goals, then that of long searches, `long` seconds or more if units are many; none if it is 0."""
        units = self.settings.units[0] if self.settings else GROUPS
        seconds = long * min(max(units / LONG_UNITS, 1), LONGEST)
        return [*self.goals, *([LONG._replace(seconds=seconds)] if seconds else [])]


def _units(few: int, many: int, goals: Mapping[Limit, float]) -> Row:
    return Row(f"{few:,}-{many:,} units", World(units=(few, many), devices=(4, 4)), goals)


def _devices(number: int, units: tuple[int, int] = SIZES) -> Row:
    return Row(f"{number} devices", World(units=units, devices=(number, number)))


def _transfers(ratio: float) -> Row:
    return Row(f"transfers {ratio:g} times the work", World(units=SIZES, devices=(4, 4), transfers=(ratio, ratio)))


ROWS: Mapping[str, Row] = {
    "units30": _units(30, 40, {HUNDRED: 0.0, THOUSAND: 0.03}),
    "units90": _units(90, 128, {HUNDRED: 0.15, THOUSAND: 0.03}),
    "units200": _units(200, 256, {HUNDRED: 0.15, THOUSAND: 0.03}),
    "units900": _units(900, 1024, {HUNDRED: 0.15, THOUSAND: 0.03}),
    "units3500": _units(3500, 4096, {HUNDRED: 0.15, THOUSAND: 0.08}),
    "units10000": _units(10_000, 12_288, {HUNDRED: 0.15, THOUSAND: 0.08, TEN_SECONDS: 0.05}),
    "devices2": _devices(2),
    "devices8": _devices(8),
    "devices16": _devices(16),
    "devices48": _devices(48, MANY_UNITS),
    "transfers0.05": _transfers(0.05),
    "transfers3": _transfers(3.0),
    "transfers10": _transfers(10.0),
    "tight": Row("memory 1.05 times the least", World(units=(64, 256), devices=(2, 8)), memory=1.05),
    "newfamilies": Row("captured models, families never seen"),
    "heldout": Row("captured models, families of the training"),
}


def row_problems(name: str, number: int, **timing: Unpack[ConditionOptions]) -> Problems:
    """The problems of a row: `number` random ones, kinds in turn, or all of a suite in at most `GROUPS` op groups."""
    if ROWS[name].settings is None:
        return suite_problems(name, groups=GROUPS, **timing)
    asked = timing.get("runtime", AUTO), timing.get("order", AUTO), timing.get("host", AUTO)
    runtime = asked_runtime(*asked, default=runtime_of("parallelize"))
    place = list(ROWS).index(name)
    return {
        f"{KINDS[i % len(KINDS)]}:number={i}@{name}": partial(_drawn, ROWS[name], place, i, name, runtime)
        for i in range(number)
    }


def _drawn(about: Row, row: int, number: int, name: str, runtime: Runtime) -> Problem:
    """A random problem of a row, whose graph has at least as many units as the settings ask: others are drawn again."""
    settings = about.settings
    assert settings is not None
    kind = KINDS[number % len(KINDS)]
    problems = (
        random_problem(settings, kind, np.random.default_rng((SEED, APART, row, number, attempt)), runtimes=[runtime])
        for attempt in count()
    )
    found = next(problem for problem in problems if problem.graph.num_units >= settings.units[0])
    graph = replace(found.graph, name=f"{kind}:number={number}")
    found = replace(found, graph=graph, cluster=replace(found.cluster, name=name))
    return _with_memory(found, about.memory * least_memory(found)) if about.memory else found


def least_memory(problem: Problem) -> float:
    """The fewest bytes of each device, all alike, with which `placers.search.first_fit` finds a plan that fits.

    It begins with a plan that saves memory, and asks for less by the shares of `CUTS` as long as it finds another.
    """
    found = saving_plan(_with_memory(problem, math.inf))
    least = float(Simulator(problem).run(found).peak_bytes.max())
    for cut in CUTS:
        while least > 0:
            tighter = _with_memory(problem, cut * least)
            fit = first_fit(tighter, found, MOST)
            if not fit.curve:
                break
            found = fit.best
            least = float(Simulator(tighter, order=fit.order).run(found).peak_bytes.max())
    return least


def _with_memory(problem: Problem, memory_bytes: float) -> Problem:
    return replace(problem, cluster=problem.cluster.with_each_device(memory_bytes=memory_bytes))
