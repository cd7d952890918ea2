"""PreparedProblem: one problem with all that is made once to evaluate many placements of it, and the best of them."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from envs.costs.costs import costs_of
from envs.objectives import Evaluator, evaluator_of
from envs.plans.plan import Plan
from envs.replacement.evaluator import ReplacementEvaluator
from envs.simulation.bounds import bound_of_devices
from envs.simulation.simulator import Outcome, Outcomes, Simulator
from graphs.op_graph import Bools, Floats, Ints
from graphs.problem import Problem


@dataclass(eq=False)
class Incumbent:
    """The placement of least value among those offered, the first of equal ones, and its order."""

    placement: Ints | None = None  # (units,) device
    value: float = np.inf  # of the placement; infinite as long as none was offered that counts
    priorities: Floats | None = None  # (ops,) of the placement, if not those of the problem's rule

    def offer(self, placement: Ints, value: float, priorities: Floats | None = None) -> bool:
        """Take copies of a placement, (units,), and its priorities, (ops,), if its value is less; returns if it is."""
        is_better = value < self.value
        if is_better:
            self.placement, self.value = placement.copy(), float(value)
            self.priorities = None if priorities is None else priorities.copy()
        return is_better

    def plan(self, problem: Problem) -> Plan | None:
        """The plan of the placement and its order, of the problem that they are of; None without a placement."""
        if self.placement is None:
            return None
        return Plan.of_units(problem, self.placement, order=self.priorities)


@dataclass(eq=False)
class PreparedProblem:
    """A problem, what evaluates its placements, and the best placement seen; not to be shared between threads."""

    problem: Problem
    incumbent: Incumbent = field(default_factory=Incumbent)  # of the placements that fit, by their seconds

    @cached_property
    def evaluator(self) -> Evaluator:
        """What evaluates placements by the problem's objective."""
        return evaluator_of(self.problem)

    @cached_property
    def simulator(self) -> Simulator:
        """What times a step under a placement, whatever the objective."""
        return Simulator(self.problem)

    @cached_property
    def fastest_device(self) -> int:
        """The device that would take least time to do everything."""
        return int(self.simulator.costs.op_seconds.sum(axis=0).argmin())

    @cached_property
    def lower_bound(self) -> float:
        """Seconds that no placement can beat on the devices, and a nanosecond at least, where a graph has no costs.

        It leaves out the host, as it always has: the lines of a run of training are in units of it, before and after
        the run is resumed.
        """
        return max(bound_of_devices(self.problem, costs_of(self.problem).op_seconds), 1e-9)

    def outcome(self, placement: Ints) -> Outcome:
        """What a placement, (units,), costs by the objective."""
        return self.outcomes(placement[None]).of(0)

    def outcomes(self, placements: Ints) -> Outcomes:
        """What each of (plans, units) placements costs by the objective."""
        return self.evaluator.run_batch(placements)

    def evaluate(self, drawn: Ints, priorities: Floats | None = None) -> Outcomes:
        """Evaluate placements (plans, units or more, the rest being padding) and remember the fastest that fits.

        A unit that was drawn where it may not run counts as where its plan would have it. Each placement is run under
        its own `priorities`, (plans, ops), if there are some; only the simulator does that.
        """
        placements = self.made_allowed(drawn)
        outcomes = outcomes_of(self.evaluator, placements, priorities)
        self.remember(placements, outcomes, priorities)
        return outcomes

    def made_allowed(self, drawn: Ints) -> Ints:
        """(plans, units) of what was drawn, (plans, units or more): without padding, and where units may run."""
        return self.problem.made_allowed(np.ascontiguousarray(drawn[:, : len(self.problem.units)]))

    def remember(self, placements: Ints, outcomes: Outcomes, priorities: Floats | None = None) -> None:
        """Offer the fastest of (plans, units) evaluated placements that fits."""
        seconds: Floats = np.where(outcomes.fits, outcomes.step_seconds, np.inf)
        fastest = int(seconds.argmin())
        order = None if priorities is None else priorities[fastest]
        self.incumbent.offer(placements[fastest], float(seconds[fastest]), order)

    # ---- what environments show of the units, all of it between 0 and 1 --------------------------------------------

    @cached_property
    def features(self) -> Floats:
        """(units, devices + 2) seconds on each device, bytes sent, bytes of weights; each a share of the largest."""
        units = self.problem.units
        columns = (units.summed(self.simulator.costs.op_seconds), units.sent_bytes, self._weight_bytes)
        return np.column_stack([_of_largest(each) for each in columns])

    @cached_property
    def edge_bytes(self) -> Floats:
        """(edges,) bytes that each edge between units carries, as a share of the heaviest edge's."""
        return _of_largest(self.problem.units.edge_bytes)

    @cached_property
    def has_room(self) -> Bools:
        """(units, devices) where a unit may run and its weights fit; if they fit nowhere, where it may run."""
        allowed = np.True_ if self.problem.allowed is None else self.problem.allowed
        room = (self._weight_bytes[:, None] <= self.problem.cluster.memory_bytes) & allowed
        has_room: Bools = np.where(room.any(axis=1, keepdims=True), room, allowed)
        return has_room

    @cached_property
    def _weight_bytes(self) -> Floats:
        """(units,) bytes of each unit's distinct weights, with gradients and optimizer state."""
        return self.problem.units.weight_bytes(self.problem.weight_memory.bytes)


def outcomes_of(evaluator: Evaluator, placements: Ints, priorities: Floats | None) -> Outcomes:
    """What each of (plans, units) placements costs, under its own priorities, (plans, ops), if there are some.

    Only what times steps by the simulator evaluates under other priorities than those of the problem's rule.
    """
    if priorities is None:
        return evaluator.run_batch(placements)
    assert isinstance(evaluator, Simulator | ReplacementEvaluator)
    return evaluator.run_ordered(placements, priorities)


def _of_largest(values: Floats) -> Floats:
    """Values >= 0 as shares of the largest (Placeto divides features by their column's maximum)."""
    largest = values.max(initial=0.0)
    return values / largest if largest > 0 else np.zeros_like(values)
