"""A stand-in of a machine that is not as it is simulated: an objective that says what a plan takes on it.

Each device takes more or less for each kind of op, and for each op, than the simulator says; ops and messages take
more, links carry more or less, and a run is a few percent slower by chance, always by the same for a plan.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import numpy as np

from envs.costs.costs import costs_of
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from graphs.problem import STEP_TIME, Problem

NOISE = 0.02


@dataclass(frozen=True)
class HiddenMachine:
    """The machine of a seed; its first device fails with more than so many ops, which takes infinitely long."""

    seed: int = 0
    most: int = 1000

    def evaluator(self, problem: Problem) -> Simulator:
        """What placements take, without noise."""
        return Simulator(self.problem(problem))

    def of_plan(self, problem: Problem, plan: Plan) -> float:
        """What a run takes."""
        if (plan.placement == 0).sum() > self.most:
            return float("inf")
        random = np.random.default_rng([self.seed, zlib.crc32(plan.placement.tobytes())])
        return simulate(self.problem(problem), plan).step_seconds * (1 + NOISE * abs(random.standard_normal()))

    def problem(self, problem: Problem) -> Problem:
        """The problem as it really is."""
        random = np.random.default_rng(self.seed)
        expected = costs_of(problem).op_seconds
        names, kind = np.unique(np.array(problem.graph.kinds), return_inverse=True)
        devices = expected.shape[1]
        logs = 0.35 * random.standard_normal(devices) + 0.3 * random.standard_normal((len(names), devices))[kind]
        factors, mean = np.exp(logs + 0.2 * random.standard_normal(expected.shape)), expected.mean()
        cluster = replace(
            problem.cluster,
            latency=problem.cluster.latency + 0.3 * mean * random.random(),
            bandwidth=problem.cluster.bandwidth * np.exp(0.5 * random.standard_normal()),
        )
        seconds = expected * factors + 0.2 * mean * random.random()
        return replace(problem, op_seconds=seconds, cluster=cluster, objective=STEP_TIME)


build = HiddenMachine
