"""Plans that are timed in both senses: how long a placer takes, and how long a step does."""

from __future__ import annotations

import time
from typing import NamedTuple

from envs.placer_result import PlacerResult
from envs.simulation.simulator import simulate
from envs.timeline import Timeline
from graphs.problem import Problem
from placers.contract.placer import Placer, as_result


class TimedPlan(NamedTuple):
    """What a placer finds, and its step in the engine, in the plan's own order if it has one."""

    result: PlacerResult
    timeline: Timeline
    cpu_seconds: float  # of placing


def timed_plan(placer: Placer, problem: Problem, budget: int, seed: int = 0) -> TimedPlan:
    """Place, and simulate the plan. Raises InputError as the placer does."""
    began = time.process_time()
    result = as_result(placer.place(problem, seed=seed, budget=budget), placer.name, seed)
    cpu_seconds = time.process_time() - began
    return TimedPlan(result, simulate(problem, result.plan), cpu_seconds)
