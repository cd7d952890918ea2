"""The latency of a plan, next to that of one device alone: throughput is often bought with it."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from envs.expansion.shares import shared
from envs.objectives import is_pipelined
from envs.objectives.latency import Latency
from envs.plan import Plan
from graphs.op_graph import Phase
from graphs.problem import Problem

_KEPT = 8  # problems and numbers of micro-batches: a comparison asks for the same ones of each placer


class PlanLatency(NamedTuple):
    """How long the forward pass of a plan's first micro-batch takes."""

    seconds: float
    alone_seconds: float  # the same samples on the fastest device that holds all of it; infinite if none does

    @classmethod
    def of(cls, problem: Problem, plan: Plan) -> PlanLatency | None:
        """None where there is no such thing: no forward op, or an objective about samples that follow one another."""
        if is_pipelined(problem) or not (problem.graph.phase == Phase.FORWARD).any():
            return None
        return cls(Latency().of_plan(problem, plan), _alone(problem, plan.schedule.micro_batches))


@lru_cache(_KEPT)
def _alone(problem: Problem, micro_batches: int) -> float:
    units, devices = problem.graph.num_units, len(problem.cluster)
    part = shared(problem, 1.0 / micro_batches)
    together = np.repeat(np.arange(devices)[:, None], units, axis=1)
    if part.allowed is not None:
        together = together[part.allowed.all(axis=0)]
    outcomes = Latency().evaluator(part).run_batch(together)
    return float(outcomes.step_seconds[outcomes.fits].min(initial=math.inf))
