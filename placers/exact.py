"""Exact: the fastest placement of a small graph, and the proof: all placements tried, or constraint programming.

CP-SAT (OR-tools) searches all schedules, and every run of the simulator is one: its bound holds for placements
that were not simulated. Placements that it proposes are simulated, and then forbidden, until the bound says that the
others are no faster. CP-SAT is deterministic here: one worker, and a limit on work instead of on time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from envs.bounds import lower_bound
from envs.placer_result import PlacerResult
from envs.simulation.simulator import Simulator
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.heft import Heft

BY_REQUEST = True  # takes long: no part of a comparison unless it is asked for
BATCH = 4096  # placements simulated together


class Solution:
    """The best placement that was found, and what no placement can beat."""

    def __init__(self, problem: Problem) -> None:
        """Nothing is known yet."""
        self.simulator = Simulator(problem)
        self.placement = np.zeros(problem.graph.num_units, np.int64)  # (units,) device
        self.step_seconds, self.fits = math.inf, False
        self.bound_seconds = math.inf  # of the step of any placement that fits; infinite if none does
        self._rank = (True, math.inf)  # whether it does not fit, and its seconds or, if so, the bytes of its peak

    def try_all(self, placements: Ints) -> None:
        """Simulate (plans, units) placements and keep the best: the fastest that fits, or else the least peak."""
        placements = self.simulator.problem.made_allowed(placements)
        outcomes = self.simulator.run_batch(placements)
        best = outcomes.best()
        seconds, fits = float(outcomes.step_seconds[best]), bool(outcomes.fits[best])
        rank = (not fits, seconds if fits else float(outcomes.peak_bytes[best].max()))
        if rank < self._rank:
            self._rank, self.step_seconds, self.fits = rank, seconds, fits
            self.placement = placements[best].astype(np.int64)


@dataclass(frozen=True)
class Exact(Named):
    """All placements if there are few, and otherwise CP-SAT."""

    ops: int = 100
    """Larger graphs are refused: the proof would not be found."""
    work: float = 20.0
    """How long CP-SAT may search in all, in its own deterministic seconds."""

    def __post_init__(self) -> None:
        if not self.work > 0:
            raise InputError(f"exact: work is {self.work}; expected a number > 0")

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The best placement found in at most `budget` simulations; with none, HEFT's.

        Raises InputError for a graph that is too large, for another objective than the step time, or without OR-tools.
        """
        problem.check_step_time("exact", "annealing, or max_load_dp for the max-load")
        if len(problem.graph) > self.ops:
            raise InputError(
                f"exact: {problem.graph.name!r} has {len(problem.graph)} ops, more than the {self.ops} that exact "
                "takes; use annealing, or raise the limit by exact:ops=N"
            )
        if budget < 1:
            return replace(Heft().place(problem, seed=seed, budget=0), placer=self.name)
        found = self.solve(problem, budget=budget)
        simulations = found.simulator.simulations
        return PlacerResult.of_units(problem, found.placement, self.name, seed, simulations=simulations)

    def solve(self, problem: Problem, *, budget: int) -> Solution:
        """The same, with the bound that says how good it is at least."""
        solution, devices, units = Solution(problem), len(problem.cluster), problem.graph.num_units
        if units * math.log(devices) <= math.log(budget):
            powers = devices ** np.arange(units)
            for first in range(0, devices**units, BATCH):
                numbers = np.arange(first, min(first + BATCH, devices**units))
                solution.try_all(
                    numbers[:, None] // powers % devices
                )  # the digits of each number to the base `devices`
        else:
            solution.bound_seconds = self._by_constraints(solution, budget)
        if solution.fits:
            solution.bound_seconds = min(solution.bound_seconds, solution.step_seconds)
        return solution

    def _by_constraints(self, incumbent: Solution, budget: int) -> float:
        """The bound that CP-SAT proves, in seconds, of what is not simulated."""
        try:
            from placers.solvers.schedules import Schedules  # needs an optional package
        except ImportError as error:
            raise InputError(
                "exact needs OR-tools for this; install it with `pip install 'placelab[exact]'`"
            ) from error
        simulator = incumbent.simulator
        problem = simulator.problem
        incumbent.try_all(Heft().place(problem, budget=0).plan.per_unit(problem)[None])
        bound = lower_bound(problem)
        horizon = incumbent.step_seconds if incumbent.fits else _all_one_by_one(simulator)
        schedules = Schedules(problem, simulator.costs.op_seconds, horizon)
        schedules.start_from(incumbent.placement)
        work = self.work
        while work > 0 and (bound < incumbent.step_seconds or not incumbent.fits):
            proposal = schedules.propose(work)
            work -= proposal.work
            bound = max(bound, proposal.bound_seconds)
            if proposal.placement is None or simulator.simulations >= budget:
                break
            incumbent.try_all(proposal.placement[None])
            schedules.forbid(proposal.placement)
        return bound


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
