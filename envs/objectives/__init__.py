"""Objectives: what a placer minimises. An extension folder: one file, one objective.

Placers that choose among placements ask the evaluator of the problem's objective. That of the step time is the
simulator; another objective, or a simulator of one's own, is another evaluator. Whole plans, with an order of their
own, stages and micro-batches, are judged by `evaluate_objective`. What is minimised is in seconds; an objective that
people read as a rate says so in its file, `RATE = "samples/s"`, and is shown as one over the seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from envs.expansion.expand import expand
from envs.plans.plan import Plan
from envs.simulation.simulator import Outcomes, Placements
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.user_code import user_code
from graphs.op_graph import Floats
from graphs.problem import STEP_TIME, Problem


class Evaluator(Protocol):
    """Evaluates placements of one problem; not to be shared between threads."""

    problem: Problem
    simulations: int  # how many placements it has evaluated

    def run_batch(self, placements: Placements, *, threads: int = 1) -> Outcomes:
        """Evaluate each of (plans, units) placements: (plans,) seconds to be minimised, and what memory they take."""
        ...

    def seconds(self, placements: Placements, *, threads: int = 1) -> Floats:
        """(plans,) the same seconds alone, which may take less time to find."""
        ...


class Objective(Protocol):
    """What a placer minimises.

    `pipelined = True` says that samples follow one another, as through a pipeline, and `static = True` that plans are
    judged without simulating them.

    An objective may have a second method, `of_plan(problem, plan) -> float`, the seconds that a whole plan is worth.
    Without it, a plan is worth what the evaluator says of its placement, under its rule but not its own numbers; and
    of a plan that is none, what the evaluator of the expanded problem says of the expanded placement. One that follows
    from the seconds of a step says so by `of_step(problem, seconds) -> float`.
    """

    def evaluator(self, problem: Problem) -> Evaluator:
        """What evaluates placements of a problem. Raises InputError for a problem that has no such objective."""
        ...


def evaluator_of(problem: Problem) -> Evaluator:
    """What evaluates placements of a problem, by the problem's objective."""
    objective: Objective = problem.objective.built
    return objective.evaluator(problem)


def is_pipelined(problem: Problem) -> bool:
    """Whether a problem's objective is about samples that follow one another, and not about one step."""
    return bool(getattr(problem.objective.built, "pipelined", False))


def is_static(problem: Problem) -> bool:
    """Whether a problem's objective says what a plan is worth without simulating it."""
    return bool(getattr(problem.objective.built, "static", False))


def has_requests(problem: Problem) -> bool:
    """Whether a problem is a forward pass of requests, of which what devices keep while they are served is not known.

    An objective says so of forward passes by `of_requests = True`.
    """
    return bool(getattr(problem.objective.built, "of_requests", False)) and not problem.graph.is_training


def rate_of(spec: str) -> str:
    """The unit of an objective that is shown as one over its seconds, such as "samples/s"; "" for any other."""
    name = spec.partition(":")[0].replace("-", "_")
    if by_name.own(spec) or name not in by_name.built_in("envs.objectives"):
        return ""
    return str(by_name.constants("envs.objectives", name).get("RATE", ""))


def evaluate_objective(problem: Problem, plan: Plan, step_seconds: float | None = None) -> float | None:
    """What a problem's objective says of a plan, in seconds; None where that is the step time.

    `step_seconds` are those of the plan's step, if they are known, which is not simulated again then. Raises InputError
    if the plan is not one for this problem, or the problem has no such objective.
    """
    if problem.objective == STEP_TIME:
        return None
    plan.check(problem)
    objective: Objective = problem.objective.built
    if step_seconds is not None and (of_step := getattr(objective, "of_step", None)):
        return float(of_step(problem, step_seconds))
    if of_plan := getattr(objective, "of_plan", None):
        return float(of_plan(problem, plan))
    return _of_evaluator(objective, problem, plan)


def _of_evaluator(objective: Objective, problem: Problem, plan: Plan) -> float:
    """What the evaluator says of a plan's placement, or of the expanded one."""
    if isinstance(plan.order, by_name.Extension):
        problem = replace(problem, runtime=problem.runtime.with_knobs(order=plan.order))
    placement = plan.per_unit(problem) if plan.is_placement else None
    if placement is None:
        expansion = expand(problem, plan)
        problem, placement = expansion.problem, expansion.placement
    return float(objective.evaluator(problem).seconds(placement[None])[0])


@dataclass(frozen=True)
class OwnObjective(by_name.OwnExtension[Objective]):
    """An objective from a user's file."""

    folder = "envs.objectives"

    @property
    def pipelined(self) -> bool:
        """Whether samples follow one another."""
        return bool(getattr(self.built, "pipelined", False))

    def evaluator(self, problem: Problem) -> OwnEvaluator:
        """What the user's evaluator says. Raises UserCodeError for what its code raises."""
        with user_code(self.file):
            return OwnEvaluator(self, problem, self.built.evaluator(problem))

    def of_plan(self, problem: Problem, plan: Plan) -> float:
        """What the user's objective says of a whole plan. Raises InputError for what is no number, or UserCodeError."""
        of_plan = getattr(self.built, "of_plan", None)
        if of_plan is None:
            return _of_evaluator(self, problem, plan)
        with user_code(self.file):
            found = of_plan(problem, plan)
        if not isinstance(found, int | float | np.floating) or np.isnan(found):
            raise InputError(f"{self.name!r}: expected the seconds of a plan from `of_plan`, got {found!r}")
        return float(found)


class OwnEvaluator:
    """An evaluator from a user's file: its errors are reported as the user's, and what it returns is checked."""

    def __init__(self, objective: OwnObjective, problem: Problem, evaluator: Evaluator) -> None:
        self.problem = problem
        self.simulations = 0
        self._objective, self._evaluator = objective, evaluator

    def run_batch(self, placements: Placements, *, threads: int = 1) -> Outcomes:
        """What the user's `run_batch` returns. Raises InputError for what are no outcomes, UserCodeError for errors."""
        with user_code(self._objective.file):
            outcomes = self._evaluator.run_batch(placements, threads=threads)
        if not isinstance(outcomes, Outcomes):
            raise InputError(
                f"{self._objective.name!r}: expected envs.simulation.simulator.Outcomes from `run_batch`, "
                f"got {type(outcomes).__name__}"
            )
        plans, devices = len(placements), len(self.problem.cluster)
        for what, shape in (("step_seconds", (plans,)), ("peak_bytes", (plans, devices)), ("fits", (plans,))):
            self._check(what, getattr(outcomes, what), shape)
        self.simulations += plans
        return outcomes

    def seconds(self, placements: Placements, *, threads: int = 1) -> Floats:
        """What the user's `seconds` returns. Raises InputError and UserCodeError likewise."""
        with user_code(self._objective.file):
            found = self._evaluator.seconds(placements, threads=threads)
        self._check("seconds", found, (len(placements),))
        self.simulations += len(placements)
        return found

    def _check(self, what: str, found: Any, shape: tuple[int, ...]) -> None:
        if np.shape(found) != shape or not isinstance(found, np.ndarray):
            raise InputError(f"{self._objective.name!r}: expected {what} as an array of shape {shape}, got {found!r}")
        if np.isnan(found).any():
            raise InputError(f"{self._objective.name!r}: {what} of a placement is NaN; expected numbers, or inf")


def checked(spec: str, built: Any) -> Objective:
    """What `build` of a user's file or of another package returned. Raises InputError for what is no objective."""
    objective: Objective = OwnObjective.checked(spec, built, "an objective", "evaluator")
    return objective
