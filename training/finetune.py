"""Fine-tuning: PPO, or REINFORCE for Placeto, on one problem, from a policy, within a number of simulations."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace
from torch import nn

from envs.iterative import Rules
from envs.plan import Plan
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.colocrl import ColocRl
from placers.gdp import Gdp
from placers.hdp import Hdp
from placers.placeto import Placeto
from placers.policies.one_shot import OneShotPolicy
from placers.policies.placeto import PlacetoPolicy
from placers.policies.sequential import SequentialPolicy
from placers.sequential import Sequential
from training.ppo import PpoTrainer
from training.recipe import Imitation, Ppo, Reinforce
from training.reinforce import Field, ReinforceTrainer
from training.rollouts import Arena

SAMPLES = 16  # placements per update: few, so that a small budget makes many improvements (our choice)
EPOCHS = 4
LEARNING_RATE = 5e-4
SELF_IMITATION = 1.0  # weight, at the start, of the likelihood of the best placement so far, falling to 0
LEAST_EPISODES = 8  # of Placeto's that a budget must allow, simulated at every step
MOST_VISITS = 20_000  # of units, in episodes simulated at their end: a minute or two


@dataclass(frozen=True, eq=False)
class FineTuned:
    """What fine-tuning on a problem gave: a policy, and the fastest fitting plan that it tried."""

    policy: nn.Module
    plan: Plan
    history: tuple[tuple[int, float], ...]  # (simulations, best step seconds so far)


@dataclass(frozen=True, eq=False)
class FineTuner:
    """A learned placer that spends its budget of simulations on fine-tuning before it answers."""

    start: Gdp | Sequential | ColocRl | Hdp | Placeto
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
        chosen, spent, history = opening.per_unit(problem), opening.simulations, []
        if simulations > 0:
            spent += 1  # the plan to beat
            course = _by_reinforce if isinstance(policy, PlacetoPolicy) else _by_ppo
            trainer, best, updates = course(policy, problem, chosen, simulations - spent, seed)
            history.append((spent, best.best_seconds))
            for _ in range(updates):
                history.append((spent + trainer.update().simulations, best.best_seconds))
            spent += trainer.simulations
            chosen = chosen if best.best_placement is None else best.best_placement
        plan = Plan.of_units(problem, chosen, placer=self.name, seed=seed, simulations=spent)
        return FineTuned(policy, plan.with_curve(_improvements(history)), tuple(history))


def _improvements(history: Sequence[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """The moments at which a fitting plan was found that is faster than those before."""
    best = np.inf
    for simulations, seconds in history:
        if seconds < best:
            best = seconds
            yield simulations, seconds


def _by_ppo(policy: Any, problem: Problem, opening: Ints, simulations: int, seed: int) -> tuple[PpoTrainer, Arena, int]:
    """A trainer on one problem, what keeps its best placement, and how many updates so many simulations allow.

    The opening, (units,), is simulated before these.
    """
    arena = Arena(problem)
    arena.simulate(opening[None])
    updates = simulations // SAMPLES
    settings, imitation = _course(policy, max(updates, 1))
    return PpoTrainer(policy, [arena], settings, seed, imitation), arena, updates


def _by_reinforce(
    policy: Any, problem: Problem, opening: Ints, simulations: int, seed: int
) -> tuple[ReinforceTrainer, Field, int]:
    """The same for Placeto's MDP, an episode per update, each beginning where the best one has come to.

    Improvements are simulated at every step; a budget for a few such episodes only buys more of those that are paid
    at their end, which take one simulation each, and not all of the budget where that would take hours.
    """
    steps = problem.graph.num_units + 1
    every_step = simulations >= LEAST_EPISODES * steps
    updates = simulations // steps if every_step else min(simulations, MOST_VISITS // steps)
    rules = Rules("improvement" if every_step else "terminal", "best", policy.shape.order)
    trainer = ReinforceTrainer(policy, [problem], _reinforce_settings(max(updates, 1)), rules=rules, seed=seed)
    trainer.note(0, opening, trainer.fields[0].scene.simulator.run(opening))
    return trainer, trainer.fields[0], updates


def _reinforce_settings(updates: int) -> Reinforce:
    """With a bonus for entropy that a policy, nearly certain after its training, needs to try anything new."""
    return Reinforce(updates=updates, relative=True, entropy=0.1, final_entropy=0.02)


def _course(policy: Any, updates: int) -> tuple[Ppo, Imitation]:
    """How a kind of policy is tuned: at rates, and with or without self-imitation, that were best for it."""
    if isinstance(policy, SequentialPolicy):
        return _sequential_settings(updates), Imitation()
    settings = _one_shot_settings if isinstance(policy, OneShotPolicy) else _settings
    return settings(updates), Imitation(weight=SELF_IMITATION)


def _settings(updates: int) -> Ppo:
    return Ppo(
        updates=updates, problems_per_update=1, samples=SAMPLES, epochs=EPOCHS,
        learning_rate=LEARNING_RATE, final_learning_rate=LEARNING_RATE / 5, entropy=0.003, final_entropy=0.0005,
    )  # fmt: skip


def _one_shot_settings(updates: int) -> Ppo:
    """Faster: an untrained policy draws every unit by itself, and has to be nearly certain before a sample is good."""
    return replace(_settings(updates), learning_rate=4e-3, final_learning_rate=8e-4)


def _sequential_settings(updates: int) -> Ppo:
    """Bolder: a trained decoder is nearly certain everywhere, and would otherwise try the same placement again."""
    return replace(_settings(updates), learning_rate=1e-3, final_learning_rate=1e-3, entropy=0.06, final_entropy=0.02)
