"""Exact: the fastest plan of a small graph, and the proof: placements and orders searched by constraint programming.

With the order free, a plan is a placement and a priority of each op. Where the placements can be listed, each has a
bound from heads and tails (`placers.solvers.placement_bounds`). They are taken by their bounds: CP-SAT (OR-tools) finds
the fastest schedule of each, until no bound is left below the best plan. Of larger problems, CP-SAT searches placements
and schedules at once, which proves much less. Times at which a schedule starts its ops are the order that is simulated.

Every run of the simulator is a schedule, whatever its order, so that bounds hold for all plans. The reverse is not
true: a schedule may leave a device idle on purpose, and give each transfer an order of its own. Where only such a
schedule is fastest, a gap is left between the bound and the best plan.

With the order of a rule, all placements are simulated if the budget is large enough. Otherwise, what CP-SAT proposes is
simulated under the rule, and then forbidden, until its bound says that the others are no faster.

CP-SAT is deterministic here: one worker, and a limit on work instead of on time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from envs.costs.costs import costs_of
from envs.plans.placer_result import PlacerResult
from envs.simulation.bounds import lower_bound
from envs.simulation.simulator import Simulator
from graphs.foundation.by_name import Named, unknown
from graphs.foundation.errors import InputError
from graphs.foundation.extras import missing
from graphs.op_graph import Floats, Ints
from graphs.problem import STEP_TIME, Problem
from placers.heft import Heft
from placers.solvers.placement_bounds import placement_bounds

if TYPE_CHECKING:
    from placers.solvers.schedules import Schedules

BY_REQUEST = True  # takes long: no part of a comparison unless it is asked for
BATCH = 4096  # placements simulated together
MOST_PLACEMENTS = 2**16  # that are listed, with a bound for each
WORK_SHARE = 0.1  # of what CP-SAT may do, for one placement
LEAST_WORK = 0.01  # that a placement counts for: a model takes about as long to make
PRECISION = 1e-5  # as a share of a step: CP-SAT counts in ticks, to which it rounds all times down
FREE, RULE = "free", "rule"


class Solution:
    """The best plan that was found, and what no plan can beat."""

    def __init__(self, problem: Problem) -> None:
        """Nothing is known yet."""
        self.problem = problem
        self.placement = np.zeros(problem.graph.num_units, np.int64)  # (units,) device
        self.order: Floats | None = None  # of the problem's rule, or (ops,) numbers, the smaller first
        self.step_seconds, self.fits = math.inf, False
        self.bound_seconds = math.inf  # of the step of any plan that fits; infinite if none does
        self.simulations = 0
        self._rank = (True, math.inf)  # whether it does not fit, and its seconds or, if so, the bytes of its peak
        self._under_rule = Simulator(problem)

    def try_all(self, placements: Ints, order: Floats | None = None) -> None:
        """Simulate (plans, units) placements and keep the best: the fastest that fits, or else the least peak."""
        placements = self.problem.made_allowed(placements)
        simulator = self._under_rule if order is None else Simulator(self.problem, order=order)
        outcomes = simulator.run_batch(placements)
        self.simulations += len(placements)
        best = outcomes.best()
        seconds, fits = float(outcomes.step_seconds[best]), bool(outcomes.fits[best])
        rank = (not fits, seconds if fits else float(outcomes.peak_bytes[best].max()))
        if rank < self._rank:
            self._rank, self.step_seconds, self.fits = rank, seconds, fits
            self.placement, self.order = placements[best].astype(np.int64), order

    def beats(self, bound_seconds: float) -> bool:
        """Whether it is as fast as what takes at least this number of seconds, to the precision of CP-SAT."""
        return self.fits and self.step_seconds * (1 - PRECISION) <= bound_seconds


@dataclass(frozen=True)
class Exact(Named):
    """The fastest plan of a small graph, with the proof."""

    ops: int = 100
    """Larger graphs are refused: the proof would not be found."""
    work: float = 20.0
    """How long CP-SAT may search in all, in its own deterministic seconds."""
    order: str = FREE
    """"free": the fastest of all placements with all orders; or "rule": of all placements under the problem's rule."""

    def __post_init__(self) -> None:
        if not self.work > 0:
            raise InputError(f"exact: work is {self.work}; expected a number > 0")
        if self.order not in (FREE, RULE):
            raise InputError(f"exact: {unknown('order', self.order, (FREE, RULE))}")

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The best plan found in at most `budget` simulations; with none, HEFT's.

        Raises InputError for a graph that is too large, for an objective that is not proportional to the step time,
        with a host, or without OR-tools.
        """
        if problem.objective.name == "throughput":  # the time of a step per sample: the same plan is best
            problem = replace(problem, objective=STEP_TIME)
        problem.check_step_time("exact", "annealing, or max_load_dp for the max-load")
        if problem.issuer is not None:
            raise InputError(
                "exact: what it proves knows no host that issues ops; leave out the host, or use annealing"
            )
        if len(problem.graph) > self.ops:
            raise InputError(
                f"exact: {problem.graph.name!r} has {len(problem.graph)} ops, more than the {self.ops} that exact "
                "takes; use annealing, or raise the limit by exact:ops=N"
            )
        if budget < 1:
            return replace(Heft().place(problem, seed=seed, budget=0), placer=self.name)
        found = self.solve(problem, budget=budget)
        return PlacerResult.of_units(
            problem, found.placement, self.name, seed, order=found.order, simulations=found.simulations
        )

    def solve(self, problem: Problem, *, budget: int) -> Solution:
        """The same, with the bound that says how good it is at least."""
        solution = Solution(problem)
        count = len(problem.cluster) ** problem.graph.num_units
        if self.order == RULE and count <= budget:
            for first in range(0, count, BATCH):
                solution.try_all(_numbered(problem, first, min(first + BATCH, count)))
            bound = math.inf
        else:
            plan = Heft().place(problem, budget=0).plan
            free = self.order == FREE and isinstance(plan.order, tuple)
            solution.try_all(plan.per_unit(problem)[None], np.array(plan.order) if free else None)
            one_by_one = self.order == FREE and count <= MOST_PLACEMENTS
            bound = self._by_placement(solution, budget) if one_by_one else self._at_once(solution, budget)
        solution.bound_seconds = min(bound, solution.step_seconds) if solution.fits else bound
        return solution

    def _by_placement(self, solution: Solution, budget: int) -> float:
        """Seconds of any plan, proven placement by placement; at most half the budget is spent on the rule."""
        problem, op_seconds = solution.problem, costs_of(solution.problem).op_seconds
        placements = _numbered(problem, 0, len(problem.cluster) ** problem.graph.num_units)
        if problem.allowed is not None:
            placements = placements[problem.allowed[np.arange(problem.graph.num_units), placements].all(axis=1)]
        bounds = placement_bounds(problem, op_seconds, placements)
        ranked = np.argsort(bounds, kind="stable")
        for batch in np.split(ranked[: budget // 2], range(BATCH, budget // 2, BATCH)):
            if len(batch) and not solution.beats(bounds[batch[0]]):
                solution.try_all(placements[batch])
        left, proven = self.work, math.inf  # proven: of the placements whose schedules were searched
        for index in ranked.tolist():
            if solution.beats(bounds[index]) or left <= 0 or solution.simulations >= budget:
                return min(proven, float(bounds[index]))
            schedules = self._schedules(solution, op_seconds)
            schedules.fix(placements[index])
            proposal = schedules.propose(min(left, WORK_SHARE * self.work))
            left -= max(proposal.work, LEAST_WORK)
            proven = min(proven, max(float(bounds[index]), proposal.bound_seconds))
            if proposal.start is not None:
                solution.try_all(placements[index][None], proposal.start)
        return proven

    def _at_once(self, solution: Solution, budget: int) -> float:
        """Seconds of any plan, or with the rule's order of any placement: the bound that CP-SAT proves."""
        problem, free = solution.problem, self.order == FREE
        schedules = self._schedules(solution, costs_of(problem).op_seconds)
        schedules.start_from(solution.placement)
        left, proven, bound = self.work, math.inf, lower_bound(problem)  # proven: of forbidden placements
        while left > 0 and not solution.beats(bound):
            proposal = schedules.propose(left)
            left -= proposal.work
            bound = max(bound, proposal.bound_seconds)
            if proposal.placement is None or solution.simulations >= budget:
                break
            assert proposal.start is not None
            solution.try_all(proposal.placement[None], proposal.start if free else None)
            schedules.forbid(proposal.placement)
            if free:  # another order of this placement may still be faster
                proven = min(proven, bound)
        return min(bound, proven)

    def _schedules(self, solution: Solution, op_seconds: Floats) -> Schedules:
        """The model of all schedules that are no slower than the best plan."""
        try:
            from placers.solvers.schedules import Schedules  # needs an optional package
        except ImportError as error:
            raise missing("ortools", "placer exact") from error
        problem = solution.problem
        horizon = solution.step_seconds if solution.fits else _all_one_by_one(problem, op_seconds)
        return Schedules(problem, op_seconds, horizon)


def _numbered(problem: Problem, first: int, end: int) -> Ints:
    """(end - first, units) placements: the digits of their numbers to the base of the number of devices."""
    devices, units = len(problem.cluster), problem.graph.num_units
    placements: Ints = np.arange(first, end)[:, None] // devices ** np.arange(units) % devices
    return placements


def _all_one_by_one(problem: Problem, op_seconds: Floats) -> float:
    """Seconds that no run exceeds: each op and each transfer after the other, on the slowest device and link."""
    graph, cluster = problem.graph, problem.cluster
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    may = True if problem.allowed is None else problem.allowed[graph.units]
    ops = np.where(may, op_seconds, 0.0).max(axis=1) + problem.hold_seconds.max()
    slowest = cluster.bandwidth[apart].min(initial=math.inf)
    sends = cluster.latency[apart].max(initial=0.0) + graph.moved_bytes / slowest + cluster.gap.max(initial=0.0)
    sends += 2 * (cluster.message_seconds.max() + graph.moved_bytes * cluster.message_seconds_per_byte.max())
    return float(ops.sum() + len(cluster) * sends.sum())


build = Exact
