"""Fine-tuning by measured steps: the released policy learns a model, paid by the machine for the most promising plans.

The same fine-tuning by simulated steps alone says which plan is the simulator's favourite, which is the first of the
runs. Both plans are then run in turns, for what a search has measured of its best plan is what it was lucky to measure.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from envs.costs.busy_machine import quiet_seconds
from envs.objectives import evaluator_of
from envs.objectives.measured import Machine
from envs.running.processes import Workers
from envs.running.training_job import Training
from evaluation.studies.fidelity.measure import STEPS, calibrated_file, in_turns, problem_of, times_file
from evaluation.studies.pieces import PIECES, Pieces
from graphs.files.load import load_cluster
from graphs.foundation import by_name
from graphs.problem import MEASURED, objective_of
from placers.learned.learned_placer import LearnedPlacer
from training.runs.finetune import FineTuner

TUNED = "tuned"  # folder
SIMULATIONS = 500
RUNS = 20  # of different plans, while fine-tuning


class Tuned(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What fine-tuning found for a model."""

    model: str
    rounds: int
    runs: int  # that were used
    favourite: tuple[float, ...]  # seconds of the steps of the plan that was found by simulation alone
    tuned: tuple[float, ...]  # of the plan that was found by measured steps

    @property
    def ratio(self) -> float:
        """The quietest steps of the tuned plan over those of the simulator's favourite."""
        return quiet_seconds(np.array(self.tuned)) / quiet_seconds(np.array(self.favourite))


def jobs(out: Path, models: dict[str, str], rounds: int) -> Pieces:
    """A job per model, which `measure` has profiled and calibrated."""
    return {
        out / TUNED / PIECES / f"{rounds}-{name}.json": partial(tuned, name, spec, out, rounds)
        for name, spec in models.items()
    }


def tuned(name: str, spec: str, out: Path, rounds: int) -> Tuned:
    """Fine-tune by simulated and by measured steps, and run both plans in turns."""
    problem = problem_of(spec, load_cluster(str(calibrated_file(out, name))), times_file(out, name))
    placer = by_name.build("placers", "default")
    assert isinstance(placer, LearnedPlacer)
    by_machine = replace(problem, objective=objective_of(f"{MEASURED}:runs={RUNS},steps={STEPS}"))
    machine = evaluator_of(by_machine)
    assert isinstance(machine, Machine)
    favourite = FineTuner(placer).tune(problem, seed=0, simulations=SIMULATIONS).result.plan
    machine.of_plan(favourite)
    FineTuner(placer).tune(by_machine, seed=0, simulations=SIMULATIONS)
    found = min(machine.measured, key=machine.measured.__getitem__)
    machine.close()
    with Workers(["cpu"] * len(problem.cluster)) as workers:
        plans = {"favourite": favourite, "tuned": found}
        seconds, _ = in_turns(workers, Training(spec, STEPS), problem, plans, rounds)
    return Tuned(model=name, rounds=rounds, runs=len(machine.measured), **seconds)
