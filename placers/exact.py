"""Exact: the fastest placement of a small graph, and the proof: all placements tried, or constraint programming.

CP-SAT (OR-tools) searches all schedules, and every run of the simulator is one: its bound holds for placements
that nobody simulated. Placements that it proposes are simulated, and then forbidden, until the bound says that what is
left is no faster. CP-SAT is deterministic here: one worker, and a limit on work instead of on time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from envs.bounds import lower_bound
from envs.placer_result import PlacerResult
from envs.simulation.simulator import Outcomes, Simulator
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.heft import Heft

BY_REQUEST = True  # takes long: no part of a comparison unless it is asked for
BATCH = 4096  # placements simulated together


@dataclass(frozen=True, eq=False)
class Solution:
    """The best placement that was found, and what no placement can beat."""

    placement: Ints  # (units,) device
    step_seconds: float
    fits: bool
    bound_seconds: float  # of the step of any placement that fits; infinite if none does


class FastestFit:
    """The best placement so far."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.placement = np.zeros(simulator.problem.graph.num_units, np.int64)
        self.seconds, self.overflow, self.fits = math.inf, math.inf, False

    def try_all(self, placements: Ints) -> None:
        """Simulate (plans, units) placements and keep the best: the fastest that fits, or else the least peak."""
        placements = self.simulator.problem.made_allowed(placements)
        outcomes = self.simulator.run_batch(placements)
        best = outcomes.best()
        if self._is_better(outcomes, best):
            self.placement = placements[best].astype(np.int64)
            self.seconds, self.fits = float(outcomes.step_seconds[best]), bool(outcomes.fits[best])
            self.overflow = float(outcomes.peak_bytes[best].max())

    def _is_better(self, outcomes: Outcomes, index: int) -> bool:
        fits = bool(outcomes.fits[index])
        if fits and self.fits:
            return bool(outcomes.step_seconds[index] < self.seconds)
        return fits or (not self.fits and bool(outcomes.peak_bytes[index].max() < self.overflow))

    def solution(self, bound_seconds: float) -> Solution:
        """It, with a bound for all other placements."""
        bound = min(bound_seconds, self.seconds) if self.fits else bound_seconds
        return Solution(self.placement, self.seconds, self.fits, bound)


@dataclass(frozen=True)
class Exact(Named):
    """All placements if there are few, and otherwise CP-SAT."""

    ops: int = 100
    """Larger graphs are refused: the proof would not be found."""
    work: float = 20.0
    """What CP-SAT may spend in all, in its own deterministic seconds."""

    def __post_init__(self) -> None:
        if not self.work > 0:
            raise InputError(f"exact: work is {self.work}; expected a number > 0")

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The best placement found in at most `budget` simulations; with none, HEFT's.

        Raises InputError for a graph that is too large, for another objective than the step time, or without OR-tools.
        """
        self._check(problem)
        if budget < 1:
            return replace(Heft().place(problem, seed=seed, budget=0), placer=self.name)
        simulator = Simulator(problem)
        solution = self.solve(problem, budget=budget, simulator=simulator)
        return PlacerResult.of_units(problem, solution.placement, self.name, seed, simulations=simulator.simulations)

    def solve(self, problem: Problem, *, budget: int, simulator: Simulator | None = None) -> Solution:
        """The same, with the bound that says how good it is at least."""
        self._check(problem)
        simulator = simulator or Simulator(problem)
        devices, units = len(problem.cluster), problem.graph.num_units
        if units * math.log(devices) <= math.log(budget):
            return _enumerated(simulator, devices, units)
        return self._by_constraints(simulator, budget)

    def _by_constraints(self, simulator: Simulator, budget: int) -> Solution:
        try:
            from placers.solvers.schedules import Schedules  # needs an optional package
        except ImportError as error:
            raise InputError(
                "exact needs OR-tools for this; install it with `pip install 'placelab[exact]'`"
            ) from error
        problem, incumbent = simulator.problem, FastestFit(simulator)
        incumbent.try_all(Heft().place(problem, budget=0).plan.per_unit(problem)[None])
        bound = lower_bound(problem)
        horizon = incumbent.seconds if incumbent.fits else _all_one_by_one(simulator)
        schedules = Schedules(problem, simulator.costs.op_seconds, horizon)
        schedules.start_from(incumbent.placement)
        work = self.work
        while work > 0 and (bound < incumbent.seconds or not incumbent.fits):
            proposal = schedules.propose(work)
            work -= proposal.work
            bound = max(bound, proposal.bound_seconds)
            if proposal.placement is None or simulator.simulations >= budget:
                break
            incumbent.try_all(proposal.placement[None])
            schedules.forbid(proposal.placement)
        return incumbent.solution(bound)

    def _check(self, problem: Problem) -> None:
        problem.check_step_time("exact", "annealing, or max_load_dp for the max-load")
        if len(problem.graph) > self.ops:
            raise InputError(
                f"exact: {problem.graph.name!r} has {len(problem.graph)} ops, more than the {self.ops} that exact "
                "takes; use annealing, or raise the limit by exact:ops=N"
            )


def _enumerated(simulator: Simulator, devices: int, units: int) -> Solution:
    """Every placement."""
    incumbent, count = FastestFit(simulator), devices**units
    powers = devices ** np.arange(units)
    for first in range(0, count, BATCH):
        numbers = np.arange(first, min(first + BATCH, count))
        incumbent.try_all(numbers[:, None] // powers % devices)
    return incumbent.solution(math.inf)


def _all_one_by_one(simulator: Simulator) -> float:
    """Seconds that no run exceeds: each op and each transfer after the other, on the slowest device and link."""
    problem = simulator.problem
    graph, cluster = problem.graph, problem.cluster
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    may = True if problem.allowed is None else problem.allowed[graph.units]
    ops = np.where(may, simulator.costs.op_seconds, 0.0).max(axis=1) + cluster.launch_seconds.max()
    slowest = cluster.bandwidth[apart].min(initial=math.inf)
    sends = cluster.latency[apart].max(initial=0.0) + graph.moved_bytes / slowest + cluster.gap.max(initial=0.0)
    return float(ops.sum() + len(cluster) * sends.sum())


build = Exact
