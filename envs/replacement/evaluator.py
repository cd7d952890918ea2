"""What placements of a model that runs already are worth: their step, and their share of moving there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from envs.replacement.running import Running
from envs.simulation.moved_weights import MovedWeights, write_moves
from envs.simulation.simulator import Outcomes, Placements, Simulator
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.problem import Problem


class ReplacementEvaluator:
    """Evaluates placements of a problem; its simulator times their steps. Raises InputError as `Running.check`."""

    def __init__(self, problem: Problem, running: Running) -> None:
        self.problem, self.running = problem, running
        self.simulator = Simulator(problem)
        self.moved: MovedWeights = running.moves(problem)

    @property
    def simulations(self) -> int:
        """How many placements it has evaluated."""
        return self.simulator.simulations

    def run_batch(self, placements: Placements, *, threads: int = 1) -> Outcomes:
        """(plans,) seconds of each of (plans, units) placements, moving included, and the memory that a step takes."""
        return self._moved(placements, self.simulator.run_batch(placements, threads=threads))

    def run_ordered(self, placements: Placements, priorities: Floats) -> Outcomes:
        """As `Simulator.run_ordered`, moving included."""
        return self._moved(placements, self.simulator.run_ordered(placements, priorities))

    def seconds(self, placements: Placements, *, threads: int = 1) -> Floats:
        """(plans,) seconds of each of (plans, units) placements, moving included."""
        step = self.simulator.seconds(placements, threads=threads)
        return step + self.moves(placements)[0]

    def moves(self, placements: Placements) -> tuple[Floats, Floats]:
        """(plans,) seconds of moving to each of (plans, units) placements, for each of its steps; (plans,) bytes."""
        checked = self.simulator.checked(placements)
        seconds, moved_bytes = np.empty(len(checked)), np.empty(len(checked))
        write_moves(self.moved, checked, seconds, moved_bytes)
        return seconds, moved_bytes

    def _moved(self, placements: Placements, outcomes: Outcomes) -> Outcomes:
        return replace(outcomes, step_seconds=outcomes.step_seconds + self.moves(placements)[0])


def replacement_of(evaluator: object, problem: Problem) -> ReplacementEvaluator:
    """The evaluator of a running model. Raises InputError, with the remedy, for one of anything else."""
    if isinstance(evaluator, ReplacementEvaluator):
        return evaluator
    raise InputError(
        f"nothing is known to run of {problem.name!r}: its objective is {str(problem.objective)!r}; name the plan that "
        "runs by the objective `replacement:plan=FILE`"
    )


def simulator_of(evaluator: object) -> Simulator | None:
    """The simulator that times the steps of an evaluator, if nothing else but moving is added to them.

    A class made of the simulator may evaluate otherwise.
    """
    if isinstance(evaluator, ReplacementEvaluator):
        return evaluator.simulator
    return evaluator if type(evaluator) is Simulator else None
