"""The step time as it is measured: of the placements that a search tries, the most promising ones are run.

The simulator proposes: all placements are simulated, and of those that are asked about together the one that it takes
for the fastest is run, by a process per device (`envs.running`), as long as it may beat what was measured so far and
runs are left. Placeto and GDP learned from measured steps alone, hundreds and thousands of them.

    run              the quietest of its steps (`envs.costs.busy_machine`)
    not run          what the simulator says, times the median of measured / simulated so far; and no less than the
                     least that was measured: a search never takes what was not run for the best

So a search ends with a placement that was run, and a policy's rewards rank placements as the machine does. The runs of
a problem are shared by all who evaluate it in this process, and with `file` by those who come after it. A plan that
fails takes infinitely long. `placers.measured_search` makes more of few runs.
"""

from __future__ import annotations

import hashlib
import logging
import math
import weakref
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from envs.costs.busy_machine import quiet_seconds
from envs.plans.plan import Plan
from envs.running.measured_run import run_plan
from envs.running.processes import ProcessError, Workers, devices_for
from envs.running.run_journal import RunJournal
from envs.running.training_job import Training
from envs.simulation.simulator import Outcomes, Placements, Simulator, simulate
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem

_log = logging.getLogger(__name__)

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
    file: str = ""
    """Where to write down what each plan took; those that are there already are not run again."""

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
        devices = devices_for(len(problem.cluster))
        self._journal = RunJournal(settings.file, _what_is_run(problem, settings, devices))
        self._workers = Workers(devices)
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
        """The seconds of a plan, which is run unless it has been; infinite if it fails, which a line on stderr says.

        Raises InputError for a plan that cannot be run, before anything is.
        """
        if plan not in self.measured:
            seconds = self._journal.seconds(plan)
            if seconds is None:
                seconds = self._run(plan)
                self._journal.add(plan, seconds)
            self.measured[plan] = seconds
            if math.isfinite(seconds):
                self._ratios.append(seconds / simulate(self.problem, plan).step_seconds)
        return self.measured[plan]

    def _run(self, plan: Plan) -> float:
        training = Training(self.settings.model or self.problem.graph.name, self.settings.steps)
        try:
            return quiet_seconds(run_plan(self._workers, training, self.problem, plan).counted)
        except ProcessError as error:
            _log.warning("a plan did not run to its end, and counts as infinitely slow: %s", error)
            return math.inf

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
        if not self._ratios:
            return self._known(placements, simulated)
        least = np.nextafter(min(self.measured.values()), np.inf)
        return self._known(placements, np.maximum(np.median(self._ratios) * simulated, least))

    def _known(self, placements: Ints, expected: Floats) -> Floats:
        """(plans,) what was measured of each, or else what is expected."""
        found = expected.copy()
        for plan, seconds in self.measured.items():
            if plan.is_placement and plan.order is None:
                found[(placements == plan.per_unit(self.problem)).all(axis=1)] = seconds
        return found


def _what_is_run(problem: Problem, settings: Measured, devices: tuple[str, ...]) -> str:
    """All that decides what a plan takes: costs do, as devices follow the simulated order."""
    costs = b"" if problem.op_seconds is None else problem.op_seconds.tobytes()
    model = settings.model or problem.graph.name
    graph, cluster, runtime = problem.graph.fingerprint, problem.cluster.fingerprint, problem.runtime.name
    return repr((graph, cluster, runtime, hashlib.sha256(costs).hexdigest(), model, settings.steps, devices))


@lru_cache(4)
def _machine(problem: Problem, settings: Measured) -> Machine:
    """The one machine of a problem, so that no placement is run twice."""
    return Machine(problem, settings)


build = Measured
