"""Replacement: a step of a model that runs already, and the share of it that moving to the plan takes.

`replacement:plan=RUNNING.plan.json,steps=1000` names the plan that runs (`envs.replacement.running` says what is
minimised). Its devices are those of the cluster with the same names; a device that the cluster does not have has left.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from envs.files.plan_file import read_plan
from envs.plans.plan import Plan
from envs.replacement.evaluator import ReplacementEvaluator
from envs.replacement.running import CHECKPOINT, STEPS, Running
from envs.simulation.simulator import simulate
from graphs.foundation.by_name import Extension
from graphs.foundation.files import check_readable
from graphs.problem import Problem


@dataclass(frozen=True)
class Replacement:
    """The seconds of a step, and of moving to where it runs, in parts of as many steps as are to pay for that."""

    plan: str
    """The plan file of what runs at the moment, of op placements."""
    steps: float = STEPS
    """Steps over which moving is paid off."""
    checkpoint: float = CHECKPOINT
    """Bytes per second at which each device reads from a checkpoint what no device holds any more."""

    def __post_init__(self) -> None:
        check_readable(Path(self.plan), "`placelab place GRAPH --out FILE` writes a plan")
        Running(np.zeros(0, np.int64), self.steps, self.checkpoint)  # refuses what are no numbers of these

    def running(self, problem: Problem) -> Running:
        """Where a problem's units run. Raises InputError for a plan that is not one of them, or no op placement."""
        return Running.of_ops(problem, read_plan(Path(self.plan)).running(problem), self.steps, self.checkpoint)

    def evaluator(self, problem: Problem) -> ReplacementEvaluator:
        """A step, and moving there."""
        return ReplacementEvaluator(problem, self.running(problem))

    def of_plan(self, problem: Problem, plan: Plan) -> float:
        """The seconds of a plan under its own order. Raises InputError for one that is no op placement."""
        return _of_plan(self.evaluator(problem), problem, plan)


@dataclass(frozen=True)
class _Known(Extension[Any]):
    """The objective of what is known to run, without a file."""

    known: Running = field(kw_only=True, compare=False)  # its name says which

    @property
    def built(self) -> Any:
        """Itself: an `envs.objectives.Objective`."""
        return self

    def running(self, _: Problem) -> Running:
        """As `Replacement.running`."""
        return self.known

    def evaluator(self, problem: Problem) -> ReplacementEvaluator:
        """A step, and moving there."""
        return ReplacementEvaluator(problem, self.known)

    def of_plan(self, problem: Problem, plan: Plan) -> float:
        """As `Replacement.of_plan`."""
        return _of_plan(self.evaluator(problem), problem, plan)

    __repr__ = Extension.__repr__


def replacing(problem: Problem, running: Running) -> Problem:
    """The problem of placing again what runs. Raises InputError if that is not the problem's, as `Running.check`."""
    running.check(problem)
    runs = np.concatenate([running.placement, running.op_devices(problem)])
    digest = hashlib.sha256(runs.astype(np.int64).tobytes()).hexdigest()[:8]
    name = f"replacement:plan={digest},steps={running.steps:g},checkpoint={running.checkpoint:g}"
    return replace(problem, objective=_Known("envs.objectives", name, known=running))


def running_of(problem: Problem) -> Running | None:
    """What runs, if the objective of a problem is to place that again. Raises InputError as `Replacement.running`."""
    built = problem.objective.built
    return built.running(problem) if isinstance(built, Replacement | _Known) else None


def moves_of(problem: Problem, plan: Plan) -> tuple[float, float] | None:
    """Seconds and bytes of moving to a plan; None if the objective of its problem is not to place again what runs.

    Raises InputError as `Replacement.of_plan`.
    """
    if (running := running_of(problem)) is None:
        return None
    seconds, moved_bytes = _moves(ReplacementEvaluator(problem, running), problem, plan)
    return seconds * running.steps, moved_bytes


def _of_plan(evaluator: ReplacementEvaluator, problem: Problem, plan: Plan) -> float:
    return simulate(problem, plan).step_seconds + _moves(evaluator, problem, plan)[0]


def _moves(evaluator: ReplacementEvaluator, problem: Problem, plan: Plan) -> tuple[float, float]:
    """Seconds of moving to a plan, for each of the steps that pay for it, and bytes."""
    seconds, moved_bytes = evaluator.moves(plan.per_unit(problem, "what places a running model again")[None])
    return float(seconds[0]), float(moved_bytes[0])


build = Replacement
