"""Starts: the placements that a search begins with, each by a placer that takes a few seconds at most.

They are in the order of what they gain per second, and a search takes those that it has the time for. That time is a
share of what its simulations take, both estimated from the sizes of the problem: no clock decides what is found. Where
seconds are the limit of a search, it is a share of these, and the clock is looked at before each.
A problem of many units has them at two of its levels, for each of the two is often much the better one. List
schedulers are asked for the problem's own units first, as whoever runs them alone asks them; the others for a quarter
of hundreds of op groups, but the best of them, METIS, for these as well. Then each is asked at the other of its levels.
Of more units than that, METIS's plan of the units themselves is one of the starts, too, as long as that takes at most
half of the seconds: no search is to be behind it (`Baseline`). Where a model runs already, it is not.
Order and estimates are measured: `docs/results/archive/starts.md` says also why other placers are no starts.
Estimates of m-ETF and m-SCT are newer: least squares of logarithms on 72 problems of 30 to 12,000 units.
KaHIP is an optional package; without it, a note of the result says that this start was left out.
"""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from envs.costs.costs import costs_of
from envs.objectives import evaluator_of
from envs.objectives.replacement import running_of
from envs.orders import priorities_of
from envs.plans.placer_result import PlacerResult
from graphs.foundation import by_name
from graphs.foundation.errors import DoesNotFitError, InputError, reason
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.contract.placer import Placer, as_result
from placers.contract.time_limit import Estimated, Stoppable
from placers.search.levels import Levels, at_finest
from placers.search.running_starts import running_starts


class PowerLaw(NamedTuple):
    """Processor seconds: `scale` times the powers of a problem's sizes."""

    scale: float
    ops: float
    units: float
    devices: float

    def seconds(self, problem: Problem) -> float:
        """For a problem, on one core of the kind that was measured."""
        ops, units, devices = len(problem.graph), problem.graph.num_units, len(problem.cluster)
        return float(self.scale * ops**self.ops * units**self.units * devices**self.devices)


class Start(NamedTuple):
    """A placer of the starts."""

    spec: str
    why: str  # it is one
    estimate: PowerLaw
    schedules: bool = False  # op by op: what it takes hardly grows with the units


# None is random: searches draw enough of those.
STARTS = (
    Start("metis:seeds=24", "of what takes so little time, the best on average", PowerLaw(0.00017, 0.34, 0.27, 0.56)),
    Start("single_device", "wins where transfers cost more than devices gain", PowerLaw(5.3e-05, 0.51, 0, 0.11)),
    Start("metis:default=true", "unlike the tuned METIS, and nearly free", PowerLaw(1.9e-05, 0.43, 0.09, 0.35)),
    Start("m_topo", "cheap; even shares of memory win now and then", PowerLaw(9.6e-06, 0.29, 0.66, 0.04)),
    Start("heft", "adds much: it sees time and branches", PowerLaw(3e-05, 0.72, 0.15, 0.1), True),
    Start("max_load_dp:ideals=0", "wins where samples are pipelined (max-load)", PowerLaw(1.2e-05, 0.59, 0.46, 0.17)),
    Start("round_robin", "nearly free, and good where all ops are alike", PowerLaw(3.6e-07, 0.87, 0, 0.04)),
    Start("pipedream", "cheap; its stages win on chains such as ptb", PowerLaw(2.3e-05, 0.28, 0.55, 0.64)),
    Start("peft", "wins on attention, where HEFT looks at too little", PowerLaw(3.3e-05, 0.85, 0.07, 0.07), True),
    Start("human_expert", "layer by layer: wins on deep recurrent nets", PowerLaw(9.1e-06, 0.92, 0, 0.07)),
    Start("m_etf", "wins on profiles of convolutional nets", PowerLaw(2.8e-05, 0.82, 0.06, 0.23), True),
    Start("kahip:seeds=1", "wins on gnmt and nasnet by lower cuts; takes long", PowerLaw(0.00018, 0.36, 0.41, 0.3)),
    Start("m_sct", "wins where HEFT and ETF spread too far", PowerLaw(8.9e-05, 0.76, 0.2, 0.12), True),
)  # fmt: skip
ALWAYS = ("single_device", "heft", "human_expert")  # what anyone would try: it takes little, and wins now and then
SIMULATION = PowerLaw(1.4e-08, 1.08, 0.06, 0.05)

TIME_SHARE = 0.5  # of the time of a search's simulations that its starts may take
SECONDS_SHARE = 0.3  # of its limit of seconds
LEAST_TIME = 1000  # simulations; starts may always take as long as these
LEAST_SECONDS = 0.1  # and as long as this: a thousand simulations of thirty ops take less than HEFT does
LARGE_SHARE = 0.5  # of its limit of seconds, that METIS's plan of many units may take, or the first one of a policy
OWN_SHARE = 0.004  # of a search's budget that each placer may spend on simulations of its own
MOST_SAMPLES = 16  # of a learned placer's policy that a start is chosen from; 63 gain as little after 1,000 simulations
MOST_UNITS = 512  # of a level that starts are made at, if the problem has one with fewer


@dataclass(frozen=True)
class Baseline:
    """METIS as anyone runs it, of all units and without simulations: seconds, where units are tens of thousands."""

    name: str = "metis"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - it needs none
        """METIS's plan."""
        result: PlacerResult = by_name.build("placers", self.name).place(problem, seed=seed)
        return result

    def least_seconds(self, problem: Problem) -> float:
        """As `Estimated.least_seconds`: its runs take as long each as one that is timed."""
        metis, one = (by_name.build("placers", spec) for spec in (self.name, f"{self.name}:default=true"))
        _ = costs_of(problem), problem.units.neighbours  # kept: they are no part of each run
        began = time.process_time()
        one.place(problem)
        return float(metis.seeds * (time.process_time() - began))


class Asked(NamedTuple):
    """A placer that is asked for a start."""

    placer: Placer
    simulations: int  # that it may spend
    level: int  # at which it places
    seconds: float = math.inf  # of a processor, that it may be estimated to take


class Starts(NamedTuple):
    """Where a search begins: placements under the problem's rule, and some under the orders of their placers."""

    placements: Ints  # (starts, units)
    spent: int  # simulations that finding them took
    notes: tuple[str, ...]  # which placers were left out, and why
    ordered: Ints = np.zeros(0, np.int64)  # (orders,) the starts whose placers gave an order, too
    priorities: Floats = np.zeros((0, 0))  # (orders, ops) of these


def starts(levels: Levels, budget: int, seed: int, learned: Placer | None = None, seconds: float = math.inf) -> Starts:
    """Placements for a search with a budget of simulations and a limit of seconds: at most as many, but always one.

    That of a learned placer comes first: the best of some samples, or its greedy placement where the budget is too
    small for a choice; of limited seconds it has its share. Then come those of the cheap placers for which there is
    time; no note says which these are.
    Where a running model is placed again, `placers.search.running_starts` come before all of them.
    """
    until = time.process_time() + SECONDS_SHARE * seconds
    if seconds < math.inf:
        learned = learned.within(SECONDS_SHARE * seconds) if isinstance(learned, Stoppable) else learned
        budget = min(budget, max(int(seconds / SIMULATION.seconds(levels[0])), 1))
    samples = min(int(2 * budget**0.5), budget // 2, MOST_SAMPLES)  # 8 for a budget of 16, and at most 16

    def asked() -> Iterator[Asked]:
        if learned is not None:
            yield Asked(learned, samples, start_levels(levels)[0], LARGE_SHARE * seconds)
        began = time.process_time()
        yield from _baseline(levels[0], seconds)
        by = until + time.process_time() - began  # it has seconds of its own
        cheap = affordable(levels, budget) if math.isinf(until) else in_time(levels, by)
        for placer, level in cheap:  # not before one is asked for: they import much
            yield Asked(placer, own_simulations(budget), level)

    return starts_of(asked(), levels, budget, seed, tuple(running_starts(levels[0])))


def starts_of(
    placers: Iterable[Asked], levels: Levels, budget: int, seed: int, given: Sequence[Ints] = (),
    *, or_fastest: bool = True,
) -> Starts:  # fmt: skip
    """The placements and orders of placers, after those that are given, (units,): at most `budget`, but always one.

    A placer that refuses the problem, or fails, is left out; if all do, everything is on the fastest device, as far as
    the graph allows that, `or_fastest` is false, and there is none.
    """
    found: list[Ints] = list(given[: max(budget, 1)])
    orders: dict[int, Floats] = {}
    notes: list[str] = []
    spent = 0
    for placer, allowed, level, limit in placers if len(found) < max(budget, 1) else ():
        try:
            _check_time(placer, levels[level], limit)
            result = as_result(placer.place(levels[level], seed=seed, budget=allowed), placer.name, seed)
            placement = result.plan.per_unit(levels[level], "a search")
        except Exception as error:  # whatever it is, the others may do
            said = str(error) if isinstance(error, InputError | DoesNotFitError) else reason(error)
            notes.append(f"start {placer.name} was left out: {said}")
            continue
        spent += result.simulations
        priorities = priorities_of(levels[level], result.plan.order) if result.plan.order is not None else np.zeros(0)
        if len(priorities):
            orders[len(found)] = priorities
        found.append(at_finest(levels, level, placement))
        if len(found) >= budget:
            break
    if not found and or_fastest:
        problem, seconds = levels[0], costs_of(levels[0]).op_seconds
        found.append(problem.made_allowed(np.full(len(problem.units), int(seconds.sum(axis=0).argmin()))))
    ordered = np.array(list(orders), np.int64)
    priorities = np.array(list(orders.values())).reshape(len(orders), len(levels[0].graph))
    placements = np.array(found, np.int64).reshape(len(found), len(levels[0].units))
    return Starts(placements, spent, tuple(notes), ordered, priorities)


def baseline(problem: Problem, seed: int, seconds: float = math.inf) -> Starts:
    """METIS's plan of a problem of many units, which what a placer finds is to be compared with; or a note without it.

    There is neither of a problem of few units, (0, units): METIS is one of many placers that are as cheap there. Nor is
    there where a model runs already, for METIS moves all of it.
    """
    return starts_of(_baseline(problem, seconds), (problem,), 1, seed, or_fastest=False)


def _baseline(problem: Problem, seconds: float) -> list[Asked]:
    if len(problem.units) <= MOST_UNITS or running_of(problem) is not None:
        return []
    return [Asked(Baseline(), 0, 0, LARGE_SHARE * seconds)]


def _check_time(placer: Placer, problem: Problem, limit: float) -> None:
    """Raises InputError for a placer that takes longer, as it estimates itself, if it does."""
    if math.isinf(limit) or not isinstance(placer, Estimated):
        return
    needed = placer.least_seconds(problem)
    if needed > limit:
        raise InputError(
            f"its plan takes about {needed:.2g} s, and {limit:.2g} s are left to it, so that the plan found may be "
            f"behind it; give {needed / LARGE_SHARE:.2g} s in all"
        )


def start_levels(levels: Levels) -> tuple[int, int]:
    """The finest level at which starts are made, and the next coarser one, if there is one."""
    finest = next((number for number, level in enumerate(levels) if len(level.units) <= MOST_UNITS), len(levels) - 1)
    return finest, min(finest + 1, len(levels) - 1)


def in_time(levels: Levels, until: float) -> Iterator[tuple[Placer, int]]:
    """Of the cheap placers, those that are to be done when the process has taken so many seconds.

    The fastest come first, and tuned METIS last, the best on average, at the level where it takes least: it takes as
    long as all others together, and longer than estimated where devices are many. They leave it the time it needs.
    What they take is estimated, and longer by as much as those before took longer than that.
    """
    turns = [(start.estimate.seconds(levels[level]), placer, level) for start, placer, level in _in_turn(levels)]
    turns.sort(key=lambda turn: turn[0])
    metis = next(turn for turn in turns if turn[1] is cheap_placers()[0])
    kept = metis[0] if time.process_time() + metis[0] <= until else 0.0
    spent = estimated = 0.0
    for turn in turns:
        needed, placer, level = turn
        if kept and turn is metis:
            continue
        if time.process_time() + needed * (max(spent / estimated, 1.0) if estimated else 1.0) + kept <= until:
            _ = evaluator_of(levels[level])  # kept: it is no part of what a placer is estimated to take
            began = time.process_time()
            yield placer, level
            spent, estimated = spent + time.process_time() - began, estimated + needed
    if kept and time.process_time() + kept <= until:
        yield metis[1:]


def affordable(levels: Levels, budget: int, seconds: float = math.inf) -> list[tuple[Placer, int]]:
    """Of the cheap placers, in their order, the first, `ALWAYS` and those for which there is time, each with its level.

    `ALWAYS` is at the level that comes first for each; another level is only asked where there is time.
    """
    least = max(LEAST_SECONDS, max(LEAST_TIME, TIME_SHARE * budget) * SIMULATION.seconds(levels[0]))
    left = min(least, TIME_SHARE * seconds)
    chosen: list[tuple[Placer, int]] = []
    asked: set[str] = set()
    for start, placer, level in _in_turn(levels):
        needed = start.estimate.seconds(levels[level])
        if not chosen or needed <= left:
            chosen.append((placer, level))
            left -= needed
        elif start.spec in ALWAYS and start.spec not in asked:
            chosen.append((placer, level))
        asked.add(start.spec)
    return chosen


def _in_turn(levels: Levels) -> list[tuple[Start, Placer, int]]:
    """The cheap placers at the levels at which they are asked, all at their first level before any at its other one."""
    finer, coarser = start_levels(levels)
    known = list(zip(STARTS, cheap_placers(), strict=True))
    turns = [(*known[0], finer)]
    turns += [(start, placer, 0 if start.schedules else coarser) for start, placer in known]
    turns += [(start, placer, coarser if start.schedules else finer) for start, placer in known]
    return list(dict.fromkeys(turns))


def own_simulations(budget: int) -> int:
    """How many simulations each cheap placer may spend on choosing its placement."""
    return int(OWN_SHARE * budget)


@cache
def cheap_placers() -> tuple[Placer, ...]:
    """The placers of STARTS, built once a search asks for them: no room imports them."""
    return tuple(by_name.build("placers", start.spec) for start in STARTS)
