"""Local search: a placement and an order that change step by step; the base of annealing and hill climbing."""

from collections.abc import Sequence

import numpy as np

from envs.replacement.evaluator import ReplacementEvaluator, simulator_of
from envs.simulation.moved_weights import MovedWeights
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.search.evaluations import Evaluations
from placers.search.idling import BusyTimes
from placers.search.known import Known
from placers.search.metropolis import CoolingSchedule, StepTables, Walk, progress, take_steps, temperature
from placers.search.moves import Moves, Proposals, random_placements
from placers.search.order_moves import OrderTables

OPS_PER_CALL = 50_000  # that are simulated in one call of compiled code: some milliseconds, for limits of time


class LocalSearch:
    """A placement, its order and energy, and steps from it.

    Steps are compiled if the problem is evaluated by the simulator and moves are ours. Otherwise each step is Python's,
    with the same rule, and the order is not changed; nor is it under a rule without priorities. How many steps are
    taken in one call changes no result.
    """

    def __init__(
        self, problem: Problem, generator: np.random.Generator, evaluations: Evaluations,
        coarser: Sequence[Problem] = (), own: Proposals | None = None,
    ) -> None:  # fmt: skip
        """It begins at the best plan so far; `coarser` are the problem's levels that it moves groups of.

        What is tried are our moves, or the `own` ones of a user.
        """
        self.generator, self.evaluations = generator, evaluations
        moves = Moves(problem, generator, coarser)
        self._proposals: Proposals = own or moves
        self._moves_groups = own is None and len(coarser) > 0
        self._steps = max(OPS_PER_CALL // max(len(problem.graph), 1), 1)
        self.has_order = len(evaluations.rule) > 0
        first = evaluations.priorities if self.has_order else np.zeros(len(problem.graph))
        self._walk = Walk.of(problem, evaluations.best, first, self._steps)
        evaluator = evaluations.evaluator
        self._simulator = simulator_of(evaluator) if own is None else None
        moved = evaluator.moved if isinstance(evaluator, ReplacementEvaluator) else None
        moved = MovedWeights.nothing(len(problem.cluster)) if moved is None else moved
        self._tables = StepTables(moves.tables, OrderTables.of(problem, first), moved)
        if self._simulator is not None:
            self._work = BusyTimes.of(problem, self._simulator.costs.op_seconds)
        self._problem = problem
        self._known = Known.of(problem, self._simulator)
        self.energy = evaluations.incumbent.value

    @property
    def current(self) -> Ints:
        """(units,) the placement."""
        placement: Ints = self._walk.placement[0].astype(np.int64)
        return placement

    @current.setter
    def current(self, placement: Ints) -> None:
        self._walk.placement[0] = placement

    @property
    def priorities(self) -> Floats:
        """(ops,) its order, the smaller first; not read under first come, first served."""
        return self._walk.priorities.copy()

    @priorities.setter
    def priorities(self, priorities: Floats) -> None:
        self._walk.priorities[:] = priorities
        self._walk.state["order_key"] = 0
        self._known = Known.of(self._problem, self._simulator)  # what is known holds under the orders before

    @property
    def energy(self) -> float:
        """The energy of the placement under its order."""
        return float(self._walk.state["energy"][0])

    @energy.setter
    def energy(self, value: float) -> None:
        self._walk.state["energy"] = value

    @property
    def critical(self) -> Ints:
        """The units at which most moves begin: those that the last plan that was kept waits for; none of few units."""
        critical = self._tables.moves.critical
        return critical.units[: critical.number[0]].copy()

    @critical.setter
    def critical(self, units: Ints) -> None:
        critical = self._tables.moves.critical
        critical.units[: len(units)], critical.number[0] = units, len(units)

    @property
    def in_vain(self) -> int:
        """Simulations since the energy was last less than before."""
        return int(self._walk.state["in_vain"][0])

    @in_vain.setter
    def in_vain(self, count: int) -> None:
        self._walk.state["in_vain"] = count

    def move_single_units(self) -> None:
        """From now on move no groups of units any more."""
        if self._moves_groups:
            self._proposals = moves = Moves(self._problem, self.generator)
            self._tables, self._moves_groups = self._tables._replace(moves=moves.tables), False

    def begin_at_best(self) -> None:
        """Go on from the best plan so far."""
        self.current, self.energy = self.evaluations.best, self.evaluations.incumbent.value
        if self.has_order:
            self.priorities = self.evaluations.priorities

    def begin_again(self, priorities: Floats) -> None:
        """Go on from a random placement under priorities, (ops,): one simulation."""
        placements = random_placements(self._problem, self.generator, 1)
        energies = self.evaluations.energies(placements, priorities[None] if self.has_order else None)
        self.current, self.priorities = placements[0], priorities
        self.energy, self.in_vain = float(energies[0]), 0

    def take_steps(self, schedule: CoolingSchedule, left: int) -> None:
        """Take some steps, for a fraction of a second and at most `left` simulations."""
        if self._simulator is None:
            self._take_step(schedule)
            return
        evaluations, walk = self.evaluations, self._walk
        walk.state["simulations"], walk.state["least_energy"] = evaluations.simulations, evaluations.incumbent.value
        problem = self._simulator.for_compiled_code()
        steps = min(self._steps, left)
        if not self.has_order:
            schedule = schedule._replace(reorder=0.0)
        take_steps(*problem, self._tables, self._work, self._known, schedule, walk, self.generator, steps)
        state = walk.state[0]
        self._simulator.simulations += int(state["simulations"]) - evaluations.simulations
        evaluations.simulations = int(state["simulations"])
        order = walk.best_priorities if self.has_order else None
        evaluations.incumbent.offer(walk.best.astype(np.int64), state["least_energy"], order)
        evaluations.curve += walk.curve[: state["better"]].tolist()

    def _take_step(self, schedule: CoolingSchedule) -> None:
        over = progress(schedule, self.evaluations.simulations)
        proposal, ceiling = self._proposals.propose(self.current, over), self.energy
        warmth = temperature(schedule, self.evaluations.simulations)
        if warmth > 0.0:
            ceiling += warmth * self.generator.standard_exponential()
        found = self.evaluations.energy_below(proposal, ceiling)
        self.in_vain = 0 if found < self.energy else self.in_vain + 1
        if np.isfinite(found):
            self.current, self.energy = proposal, found
