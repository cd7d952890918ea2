"""The latency of a plan, next to that of one device alone: throughput is often bought with it."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from envs.expansion.shares import shared
from envs.objectives import is_pipelined
from envs.objectives.latency import Latency
from envs.plans.plan import Plan
from evaluation.tables.alone import all_on_one
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
    part = shared(problem, 1.0 / micro_batches)
    outcomes = Latency().evaluator(part).run_batch(all_on_one(part))
    return float(outcomes.step_seconds[outcomes.fits].min(initial=math.inf))
