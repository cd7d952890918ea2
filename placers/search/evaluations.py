"""Evaluations of a search: the energy of each plan, the incumbent, and how the search came to it."""

import math

import numpy as np

from envs.objectives import Evaluator, evaluator_of
from envs.orders import priorities_of
from envs.prepared_problem import Incumbent, outcomes_of
from envs.replacement.evaluator import simulator_of
from envs.simulation.compiled import compiled, inlined
from envs.simulation.simulator import Outcomes
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from placers.search.starts import Starts

OVERFLOW = 10.0  # energy of any overflow of memory: as much as a step that takes 20,000 times longer


@inlined
def log_seconds(seconds: float) -> float:
    """The energy of a placement that fits: the log of the seconds to be minimised."""
    return math.log(max(seconds, 1e-30))


@inlined
def overflow(peak_bytes: Floats, memory_bytes: Floats) -> float:
    """What memory adds to the energy: OVERFLOW times one plus the log of how far it overflows; 0 if it does not.

    Both are (devices,). Among placements that do not fit, the one that is nearest to fitting has least energy, so a
    search repairs a start that does not fit.
    """
    total = 0.0
    for device in range(len(memory_bytes)):
        ratio = max(peak_bytes[device], 1.0) / max(memory_bytes[device], 1.0)
        if ratio > 1.0:
            total += math.log(ratio)
    return OVERFLOW * (1.0 + total) if total > 0.0 else 0.0


@compiled
def energies(seconds: Floats, peak_bytes: Floats, memory_bytes: Floats, found: Floats) -> None:
    """Write the energies of placements, (plans,): `seconds` is (plans,), `peak_bytes` (plans, devices)."""
    for plan in range(len(seconds)):
        found[plan] = log_seconds(seconds[plan]) + overflow(peak_bytes[plan], memory_bytes)


def rule_of(evaluator: Evaluator) -> Floats:
    """(ops,) the priorities by the problem's rule; empty for first come, first served, and where none are read.

    Only the simulator reads them, and not what is made of it: that may evaluate otherwise.
    """
    simulator = simulator_of(evaluator)
    return np.zeros(0) if simulator is None else simulator.priorities


class Evaluations:
    """Evaluates placements and orders by the problem's objective, and keeps those of least energy."""

    def __init__(self, problem: Problem, first: Ints, simulations: int = 0) -> None:
        """`first`, (units,), is the best placement until one is evaluated; it was found in some `simulations`."""
        self._problem = problem
        self.evaluator = evaluator_of(problem)
        self.rule = rule_of(self.evaluator)  # (ops,) priorities, or none
        self.simulations = simulations
        self._memory_bytes = problem.cluster.memory_bytes.copy()  # numba compiles again for what cannot be written
        self.incumbent = Incumbent(first)  # its value is an energy
        self.curve: list[tuple[int, float]] = []  # (simulations, seconds) of each better placement that fits

    @property
    def best(self) -> Ints:
        """(units,) the placement of least energy; the first one if none was evaluated."""
        assert self.incumbent.placement is not None
        return self.incumbent.placement

    @property
    def priorities(self) -> Floats:
        """(ops,) the priorities of the best placement; empty where the problem's rule has none."""
        return self.rule if self.incumbent.priorities is None else self.incumbent.priorities

    @property
    def order(self) -> Floats | None:
        """The order of the best plan: (ops,) priorities, or None if they are those of the problem's rule."""
        return None if np.array_equal(self.priorities, self.rule) else self.priorities

    def energies(self, placements: Ints, priorities: Floats | None = None) -> Floats:
        """(plans,) energies of placements (plans, units), each under its own priorities, (plans, ops), if there are."""
        outcomes = outcomes_of(self.evaluator, placements, priorities)
        self.simulations += len(placements)
        return self._noted(placements, outcomes, priorities)

    def compare_orders(self, starts: Starts, budget: int) -> None:
        """Evaluate starts under the orders of their placers, if the problem has an order, as the budget allows.

        If none fits in memory, all are evaluated in PyTorch's order, too, which keeps less at a time.
        """
        ordered = starts.ordered[: max(budget - self.simulations, 0)]
        if len(self.rule) and len(ordered):
            self.energies(starts.placements[ordered], starts.priorities[: len(ordered)])
        tried = starts.placements[: max(budget - self.simulations, 0)]
        if len(self.rule) and not self.curve and len(tried) and self._problem.runtime.frees_order:
            self.energies(tried, np.tile(priorities_of(self._problem, PROGRAM), (len(tried), 1)))

    def energy_below(self, placement: Ints, ceiling: float) -> float:
        """The energy of one placement, (units,), but infinite if it is above a ceiling.

        Seconds alone are above it for most changes of a good placement, and are faster to find than memory.
        """
        seconds = float(self.evaluator.seconds(placement[None])[0])
        self.simulations += 1
        if log_seconds(seconds) > ceiling:
            return np.inf
        found = float(self._noted(placement[None], self.evaluator.run_batch(placement[None]))[0])  # the same simulation
        return found if found <= ceiling else np.inf

    def _noted(self, placements: Ints, outcomes: Outcomes, priorities: Floats | None = None) -> Floats:
        """(plans,) energies of the latest placements."""
        found = np.empty(len(placements))
        seconds, peak_bytes = (np.array(each, np.float64) for each in (outcomes.step_seconds, outcomes.peak_bytes))
        energies(seconds, peak_bytes, self._memory_bytes, found)
        first = self.simulations - len(placements) + 1
        for index in np.flatnonzero(found < self.incumbent.value).tolist():
            order = None if priorities is None else priorities[index]
            if self.incumbent.offer(placements[index], found[index], order) and outcomes.fits[index]:
                self.curve.append((first + index, float(outcomes.step_seconds[index])))
        return found
