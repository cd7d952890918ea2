"""Placements drawn at random: every unit's device is uniform over the cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.plan import Plan
from envs.simulator import Simulator
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.searching.judge import Judge

BATCH = 256  # placements held in memory at once


@dataclass(frozen=True)
class Random:
    """One random placement, or the best of as many as the budget allows."""

    @property
    def name(self) -> str:
        """Its spec."""
        return "random"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> Plan:
        """With a budget of one, a draw that is not simulated; else the best of `budget` draws."""
        generator = np.random.default_rng(seed)
        if budget <= 1:
            return Plan.of_units(problem, _draw(problem, generator, 1)[0], placer=self.name, seed=seed)
        judge = Judge(Simulator(problem), _draw(problem, generator, 1)[0])
        while (left := budget - judge.simulations) > 0:
            judge.energies(_draw(problem, generator, min(left, BATCH)))
        made = Plan.of_units(problem, judge.best, placer=self.name, seed=seed, simulations=budget)
        return made.with_curve(judge.curve)


def build() -> Random:
    """The placer; it has no knobs."""
    return Random()


def _draw(problem: Problem, generator: np.random.Generator, count: int) -> Ints:
    return generator.integers(len(problem.cluster), size=(count, problem.graph.num_units))
