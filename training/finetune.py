"""Fine-tuning: PPO on one problem, from a trained policy, within a number of simulations."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from torch import nn

from envs.plan import Plan
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.colocrl import ColocRl
from placers.gdp import Gdp
from placers.hdp import Hdp
from placers.policies.sequential import SequentialPolicy
from placers.sequential import Sequential
from training.ppo import PpoTrainer
from training.recipe import Ppo
from training.rollouts import Arena

SAMPLES = 16  # placements per update: few, so that a small budget makes many improvements (our choice)
EPOCHS = 4
LEARNING_RATE = 5e-4


@dataclass(frozen=True, eq=False)
class FineTuned:
    """What fine-tuning on a problem gave: a policy, and the fastest fitting plan that it tried."""

    policy: nn.Module
    plan: Plan
    history: tuple[tuple[int, float], ...]  # (simulations, best step seconds so far)


@dataclass(frozen=True, eq=False)
class FineTuner:
    """A learned placer that spends its budget of simulations on fine-tuning before it answers."""

    start: Gdp | Sequential | ColocRl | Hdp
    on_tuned: Callable[[FineTuned], None] | None = None  # receives what `place` found on the way to its plan

    @property
    def name(self) -> str:
        """The starting placer's name, marked."""
        return f"{self.start.name}+finetuned"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1000) -> Plan:
        """The fastest fitting plan found within the budget; the greedy one if the budget allows no more."""
        tuned = self.tune(problem, seed=seed, simulations=budget)
        if self.on_tuned is not None:
            self.on_tuned(tuned)
        return tuned.plan

    def tune(self, problem: Problem, *, seed: int = 0, simulations: int = 1000) -> FineTuned:
        """Fine-tune a copy of the policy; the starting policy stays as it is.

        A few simulations choose the zero-shot plan to beat, all others go to updates of the policy.
        """
        start = self.start.policy_for(problem) if isinstance(self.start, ColocRl | Hdp) else self.start.policy
        policy = copy.deepcopy(start)
        opening = self.start.place(problem, seed=seed, budget=max(0, min(SAMPLES, simulations - 1)))
        arena = Arena(problem)
        history = []
        if simulations > 0:
            arena.simulate(_per_unit(problem, opening)[None])
            history.append((opening.simulations + 1, arena.best_seconds))
            updates = (simulations - opening.simulations - 1) // SAMPLES
            settings = _sequential_settings if isinstance(policy, SequentialPolicy) else _settings
            trainer = PpoTrainer(policy, [arena], settings(max(updates, 1)), seed)
            for _ in range(updates):
                history.append((opening.simulations + 1 + trainer.update().simulations, arena.best_seconds))
        chosen = _per_unit(problem, opening) if arena.best_placement is None else arena.best_placement
        spent = opening.simulations + arena.simulator.simulations
        return FineTuned(
            policy,
            Plan.of_units(problem, chosen, placer=self.name, seed=seed, simulations=spent),
            tuple(history),
        )


def _per_unit(problem: Problem, plan: Plan) -> Ints:
    """(units,) the plan's device of each unit."""
    devices = np.zeros(problem.graph.num_units, np.int64)
    devices[problem.graph.units] = plan.placement
    return devices


def _settings(updates: int) -> Ppo:
    return Ppo(
        updates=updates, problems_per_update=1, samples=SAMPLES, epochs=EPOCHS,
        learning_rate=LEARNING_RATE, final_learning_rate=LEARNING_RATE / 5, entropy=0.003, final_entropy=0.0005,
    )  # fmt: skip


def _sequential_settings(updates: int) -> Ppo:
    """Bolder: a trained decoder is nearly certain everywhere, and would otherwise try the same placement again."""
    return replace(_settings(updates), learning_rate=1e-3, final_learning_rate=1e-3, entropy=0.06, final_entropy=0.02)
