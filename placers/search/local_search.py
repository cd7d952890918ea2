"""Local search: one placement that changes step by step, of which annealing and hill climbing are made."""

from __future__ import annotations

import numpy as np

from envs.simulation.simulator import Simulator
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.search.evaluations import Evaluations
from placers.search.metropolis import ENTRY, STATE, Schedule, Walk, take_steps, temperature
from placers.search.moves import Moves

OPS_PER_CALL = 200_000  # that are simulated in one call of compiled code: some hundredths of a second, for Ctrl-C


class LocalSearch:
    """A placement, its energy, and steps from it.

    Steps are compiled if the problem is evaluated by the simulator, and one plan at a time. Otherwise each step is
    Python's, with the same moves and the same rule; how many are taken in one call changes no result.
    """

    def __init__(
        self, problem: Problem, generator: np.random.Generator, evaluations: Evaluations, at_once: int = 1
    ) -> None:
        """It begins at the best placement so far; `at_once` changes are tried at a time, each on a thread.

        A later one of them counts only if those before it are refused, as nearly all are.
        """
        self.generator, self.evaluations = generator, evaluations
        self._moves, self._at_once = Moves(problem, generator), at_once
        self._steps = max(OPS_PER_CALL // max(len(problem.graph), 1), 1)
        devices = len(problem.cluster)
        self._walk = Walk(
            np.zeros(1, STATE), np.array(evaluations.best[None], np.uint32), np.array(evaluations.best, np.uint32),
            np.zeros(self._steps, ENTRY), problem.cluster.memory_bytes.copy(), np.zeros(1), np.zeros((1, devices)),
            np.zeros((0, devices)),
        )  # fmt: skip
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
    def energy(self) -> float:
        """The placement's energy."""
        return float(self._walk.state["energy"][0])

    @energy.setter
    def energy(self, value: float) -> None:
        self._walk.state["energy"] = value

    @property
    def in_vain(self) -> int:
        """Simulations since the energy was last less than before."""
        return int(self._walk.state["in_vain"][0])

    @in_vain.setter
    def in_vain(self, count: int) -> None:
        self._walk.state["in_vain"] = count

    def take_steps(self, schedule: Schedule, left: int) -> None:
        """Take some steps, for a fraction of a second and at most `left` simulations."""
        evaluator = self.evaluations.evaluator
        if self._at_once == 1 and type(evaluator) is Simulator:  # a class made of it may evaluate otherwise
            self._take_compiled_steps(evaluator, schedule, min(self._steps, left))
        else:
            self._take_step(schedule, min(self._at_once, left))

    def _take_compiled_steps(self, simulator: Simulator, schedule: Schedule, steps: int) -> None:
        evaluations, walk = self.evaluations, self._walk
        walk.state["simulations"], walk.state["least_energy"] = evaluations.simulations, evaluations.incumbent.value
        take_steps(*simulator.for_compiled_code(), self._moves.tables, schedule, walk, self.generator, steps)
        state = walk.state[0]
        evaluations.simulations = int(state["simulations"])
        evaluations.incumbent.offer(walk.best.astype(np.int64), state["least_energy"])
        evaluations.curve += walk.curve[: state["better"]].tolist()

    def _take_step(self, schedule: Schedule, count: int) -> None:
        proposals = np.array([self._moves.propose(self.current) for _ in range(count)])
        ceilings = np.full(count, self.energy)
        warmth = temperature(schedule, self.evaluations.simulations)
        if warmth > 0:
            ceilings += warmth * self.generator.standard_exponential(count)
        found = self.evaluations.energies_below(proposals, ceilings, count)
        for proposal, energy in zip(proposals, found.tolist(), strict=True):
            self.in_vain = 0 if energy < self.energy else self.in_vain + 1
            if np.isfinite(energy):
                self.current, self.energy = proposal, energy
                break
