"""The step time as it is measured: of the placements that a search tries, the most promising ones are run.

The simulator proposes: all placements are simulated, and of those that are asked about together the one that it takes
for the fastest is run, by a process per device (`envs.running`), as long as it may beat what was measured so far and
runs are left. Placeto and GDP learned from measured steps alone, hundreds and thousands of them.

    run              the quietest of its steps (`envs.costs.busy_machine`)
    not run          what the simulator says, times the median of measured / simulated so far; and no less than the
                     least that was measured: a search never takes what was not run for the best

So a search ends with a placement that was run, and a policy's rewards rank placements as the machine does. The runs of
a problem are shared by all who evaluate it in this process.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from envs.costs.busy_machine import quiet_seconds
from envs.plans.plan import Plan
from envs.running.measured_run import run_plan
from envs.running.processes import Workers, devices_for
from envs.running.training_job import Training
from envs.simulation.simulator import Outcomes, Placements, Simulator, simulate
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem

CLOSE = 0.1  # what is predicted to take this much longer than the best so far may still beat it


@dataclass(frozen=True)
class Measured:
    """The seconds of a step, measured for the most promising placements."""

    runs: int = 20
    """How many placements are run at most."""
    steps: int = 6
    """Steps of each run; of more than two the first two do not count."""
    model: str = ""
    """What is trained, `file.py:callable`; without it, the family that the graph is named after."""

    def evaluator(self, problem: Problem) -> Machine:
        """Its seconds. Nothing is started before a placement is to be evaluated."""
        return _machine(problem, self)

    def of_plan(self, problem: Problem, plan: Plan) -> float:
        """The seconds of a whole plan, which is run whether or not runs are left, unless it has been."""
        return self.evaluator(problem).of_plan(plan)


class Machine:
    """Evaluates placements of a problem on this machine, one process per device."""

    def __init__(self, problem: Problem, settings: Measured) -> None:
        self.problem, self.settings = problem, settings
        self.measured: dict[Plan, float] = {}
        """The seconds of each plan that was run, in their order."""
        self._simulator = Simulator(problem)
        self._ratios: list[float] = []  # measured / simulated
        self._workers = Workers(devices_for(len(problem.cluster)))
        weakref.finalize(self, self._workers.close)

    def close(self) -> None:
        """End the processes; the next run starts them again."""
        self._workers.close()

    @property
    def simulations(self) -> int:
        """How many placements it has evaluated, run or not."""
        return self._simulator.simulations

    def run_batch(self, placements: Placements, *, threads: int = 1) -> Outcomes:
        """(plans,) seconds of each of (plans, units) placements, and the memory that the simulator says they take."""
        outcomes = self._simulator.run_batch(placements, threads=threads)
        per_unit = self._simulator.checked(placements).astype(np.int64)
        self._run_the_most_promising(per_unit, outcomes)
        return replace(outcomes, step_seconds=self._seconds(per_unit, outcomes.step_seconds))

    def seconds(self, placements: Placements, *, threads: int = 1) -> Floats:
        """(plans,) seconds of each of (plans, units) placements."""
        return self.run_batch(placements, threads=threads).step_seconds

    def of_plan(self, plan: Plan) -> float:
        """The seconds of a plan, which is run unless it has been."""
        if plan not in self.measured:
            training = Training(self.settings.model or self.problem.graph.name, self.settings.steps)
            run = run_plan(self._workers, training, self.problem, plan)
            self.measured[plan] = quiet_seconds(run.counted)
            self._ratios.append(self.measured[plan] / simulate(self.problem, plan).step_seconds)
        return self.measured[plan]

    def _run_the_most_promising(self, placements: Ints, outcomes: Outcomes) -> None:
        if len(self.measured) >= self.settings.runs:
            return
        ratio = float(np.median(self._ratios)) if self._ratios else 0.0
        most = (1 + CLOSE) * min(self.measured.values(), default=np.inf)
        for index in np.argsort(outcomes.step_seconds, kind="stable").tolist():
            plan = Plan.of_units(self.problem, placements[index])
            if ratio * outcomes.step_seconds[index] > most:
                return
            if outcomes.fits[index] and plan not in self.measured:
                self.of_plan(plan)
                return

    def _seconds(self, placements: Ints, simulated: Floats) -> Floats:
        """(plans,) what was measured of each, or else what can be said by the ratio so far."""
        if not self.measured:
            return simulated
        least = np.nextafter(min(self.measured.values()), np.inf)
        found: Floats = np.maximum(np.median(self._ratios) * simulated, least)
        for plan, seconds in self.measured.items():
            if plan.is_placement and plan.order is None:
                found[(placements == plan.per_unit(self.problem)).all(axis=1)] = seconds
        return found


@lru_cache(4)
def _machine(problem: Problem, settings: Measured) -> Machine:
    """The one machine of a problem, so that no placement is run twice."""
    return Machine(problem, settings)


build = Measured
