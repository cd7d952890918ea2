"""A job for which a planner publishes its answer, and how both answers are judged."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from evaluation.commands.load_placer import load_placer
from graphs.cluster import Cluster
from graphs.problem import Problem

Verdict = tuple[float, bool]  # seconds of a step, or of a sample or token that passes, and whether the plan fits
MEASURED, MODELLED = "measured", "its own model"


class Theirs(NamedTuple):
    """An answer that is published."""

    whose: str
    words: str
    printed: float  # in the unit of its job; 0 if nothing is
    how: str = MEASURED
    placed: Callable[[Problem], tuple[Problem, Plan]] | None = None
    """The plan for the engine, and the problem that it is judged on; None if it is not published in full."""


def in_seconds(problem: Problem, plan: Plan) -> Verdict:
    """Seconds of a step."""
    step = simulate(problem, plan)
    return step.step_seconds, step.fits


class Job(NamedTuple):
    """What a planner was asked for, with its answer and perhaps those that it is compared with there."""

    name: str
    words: str
    source: str
    problem: Callable[[], Problem]
    theirs: tuple[Theirs, ...]
    unit: str = "s"
    amount: float = 0.0  # of the unit's numerator in a step; 0 for seconds of a step
    judge: Callable[[Problem, Plan], Verdict] = in_seconds
    remark: str = ""

    def worth(self, seconds: float) -> float:
        """Seconds in the unit of the job."""
        return self.amount / seconds if self.amount else seconds

    def seconds(self, worth: float) -> float:
        """The other way round."""
        return self.amount / worth if self.amount else worth


def by_spec(spec: str) -> Callable[[Problem], tuple[Problem, Plan]]:
    """The plan of a placer that is asked by its spec."""

    def placed(problem: Problem) -> tuple[Problem, Plan]:
        return problem, load_placer(spec).place(problem, seed=0, budget=1).plan

    return placed


def with_memory(cluster: Cluster, size: float) -> Cluster:
    """The same devices with so many bytes each."""
    return replace(cluster, devices=tuple(replace(device, memory_bytes=size) for device in cluster.devices))
