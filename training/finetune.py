"""Fine-tuning: PPO, or REINFORCE for Placeto, on one problem, from a policy, within a number of simulations."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, isqrt
from typing import Any

import numpy as np
from msgspec.structs import replace
from torch import nn

from envs.gym.iterative import Rules
from envs.placer_result import PlacerResult
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.colocrl.placer import ColocRl
from placers.learned.colocrl.policy import ColocRlPolicy
from placers.learned.gdp.placer import Gdp
from placers.learned.gdp.policy import OneShotPolicy
from placers.learned.hdp.placer import Hdp
from placers.learned.placeto.placer import Placeto
from placers.learned.placeto.policy import PlacetoPolicy
from placers.learned.sequential.placer import Sequential
from placers.learned.sequential.policy import SequentialPolicy
from training.ppo import PpoTrainer
from training.recipe import Imitation, Ppo, Reinforce
from training.reinforce import Field, ReinforceTrainer
from training.rollouts import Arena

SAMPLES = 16  # placements per update: few, so that a small budget makes many improvements (our choice)
EPOCHS = 4
LEARNING_RATE = 5e-4
SELF_IMITATION = 1.0  # weight of the likelihood of the best placement so far (Oh et al. 2018), falling to 0; ours
EPISODES = 4  # of Placeto's side by side
EVERY, MOST = 4, 32  # their steps from one simulation to the next; more where an episode would take so many

# Of Placeto: a policy learns from each half of an episode, and soon leaves most units of the best placement where they
# are, so that a budget buys hundreds of episodes.
REINFORCE = Reinforce(
    episodes=EPISODES, baseline_updates=1, steps=32, epochs=2, learning_rate=3e-3, final_learning_rate=1e-3,
    entropy=0.03, final_entropy=0.01, gradient_norm=40.0, imitation=SELF_IMITATION, relative=True, normalised=True,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class FineTuned:
    """What fine-tuning on a problem gave: a policy, and the best fitting plan that it tried, by the objective."""

    policy: nn.Module
    result: PlacerResult
    history: tuple[tuple[int, float], ...]  # (simulations, best seconds so far)


@dataclass(frozen=True, eq=False)
class FineTuner:
    """A learned placer that spends its budget of simulations on fine-tuning before it answers."""

    start: Gdp | Sequential | ColocRl | Hdp | Placeto
    on_tuned: Callable[[FineTuned], None] | None = None  # receives what `place` found on the way to its plan
    from_scratch: bool = False  # the start is untrained: without simulations it has nothing to say

    @property
    def name(self) -> str:
        """The starting placer's name, marked."""
        return f"{self.start.name}+finetuned"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1000) -> PlacerResult:
        """The fastest fitting plan found within the budget; the greedy one if the budget allows no more.

        Raises InputError if the policy is to learn from scratch and the budget is 0.
        """
        if self.from_scratch and budget < 1:
            raise InputError(
                f"{self.name!r} learns from scratch by simulating placements, and its budget is 0; "
                "give it a budget, or a trained policy"
            )
        tuned = self.tune(problem, seed=seed, simulations=budget)
        if self.on_tuned is not None:
            self.on_tuned(tuned)
        return tuned.result

    def tune(self, problem: Problem, *, seed: int = 0, simulations: int = 1000) -> FineTuned:
        """Fine-tune a copy of the policy; the starting policy stays as it is.

        A few simulations choose the zero-shot plan to beat, all others go to updates of the policy. Raises InputError
        for an objective that the policy's training does not know.
        """
        if isinstance(self.start, Placeto):
            problem.check_step_time(f"{self.name}, by REINFORCE,", "another policy, or this one without fine-tuning")
        start = self.start.policy_for(problem) if isinstance(self.start, ColocRl | Hdp) else self.start.policy
        policy = copy.deepcopy(start)
        opening = self.start.place(problem, seed=seed, budget=max(0, min(SAMPLES, simulations - 1)))
        chosen, spent, history = opening.plan.per_unit(problem), opening.simulations, []
        if simulations > 0:
            spent += 1  # the plan to beat
            course = _by_reinforce if isinstance(policy, PlacetoPolicy) else _by_ppo
            best, progress = course(policy, problem, chosen, simulations - spent, seed)
            history.append((spent, best.best_seconds))
            history.extend((spent + simulated, best.best_seconds) for simulated in progress)
            spent = history[-1][0]
            chosen = chosen if best.best_placement is None else best.best_placement
        curve = _improvements(history)
        result = PlacerResult.of_units(problem, chosen, self.name, seed, simulations=spent, curve=curve)
        return FineTuned(policy, result, tuple(history))


def _improvements(history: Sequence[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """The moments at which a fitting plan was found that is faster than those before."""
    best = np.inf
    for simulations, seconds in history:
        if seconds < best:
            best = seconds
            yield simulations, seconds


def _by_ppo(policy: Any, problem: Problem, opening: Ints, simulations: int, seed: int) -> tuple[Arena, Iterator[int]]:
    """What keeps the best placement of a problem, and the updates, which yield the simulations taken so far.

    The opening, (units,), is simulated before these.
    """
    arena = Arena(problem)
    arena.simulate(opening[None])
    settings, imitation = _course(policy, simulations)
    trainer = PpoTrainer(policy, [arena], settings, seed, imitation)
    return arena, (trainer.update().simulations for _ in range(simulations // settings.samples))


def _by_reinforce(
    policy: Any, problem: Problem, opening: Ints, simulations: int, seed: int
) -> tuple[Field, Iterator[int]]:
    """The same for Placeto's MDP, some episodes per update, which begin where the best one has come to.

    The first of them know the opening and the arbitrary start of the paper, all units on one device.
    """
    every = max(EVERY, ceil(problem.graph.num_units / MOST))
    rules = Rules("improvement", "best", policy.shape.order, every=every)
    trainer = ReinforceTrainer(policy, [problem], REINFORCE, rules=rules, seed=seed, remember=True)
    field = trainer.fields[0]
    trainer.note(0, opening, field.observed.simulator.run(opening))
    return field, _episodes(trainer, simulations)


def _episodes(trainer: ReinforceTrainer, simulations: int) -> Iterator[int]:
    """Updates until so many simulations may be exceeded by the next; yields those taken so far.

    An episode that ends where it began takes none. Lest a policy that moves nothing goes on for ever, each counts as
    one when it comes to how many updates there are.
    """
    field = trainer.fields[0]
    if simulations:
        together = np.full(field.observed.problem.graph.num_units, field.observed.prepared.fastest_device)
        trainer.note(0, together, field.observed.simulator.run(together))
        trainer.simulations += 1
        yield trainer.simulations
    at_most = trainer.mdp.rules.simulations(field.observed.problem.graph.num_units)
    for _ in range(simulations // EPISODES):
        count = min(EPISODES, (simulations - trainer.simulations) // at_most)
        if count == 0:
            return
        before = trainer.simulations
        trainer.update(count=count, progress=before / simulations)
        if trainer.simulations > before:
            yield trainer.simulations


def _course(policy: Any, simulations: int) -> tuple[Ppo, Imitation]:
    """The settings of a kind of policy; GDP and HDP imitate themselves.

    ColocRL is better without, and for the decoder that was not tried.
    """
    if isinstance(policy, SequentialPolicy):
        return _sequential_settings(simulations), Imitation()
    if isinstance(policy, ColocRlPolicy):
        return _colocrl_settings(simulations), Imitation()
    settings = _one_shot_settings if isinstance(policy, OneShotPolicy) else _settings
    return settings(simulations), Imitation(weight=SELF_IMITATION)


def _settings(simulations: int, samples: int = SAMPLES) -> Ppo:
    """Those of HDP, for which rates from 1e-4 to 4e-3 were tried, and what the others depart from."""
    return Ppo(
        updates=max(1, simulations // samples), problems_per_update=1, samples=samples, epochs=EPOCHS,
        learning_rate=LEARNING_RATE, final_learning_rate=LEARNING_RATE / 5, entropy=0.003, final_entropy=0.0005,
    )  # fmt: skip


def _colocrl_settings(simulations: int) -> Ppo:
    """Somewhat faster; rates from 5e-4 to 2e-3, samples of 8, and self-imitation were tried on Placeto's graphs."""
    return replace(_settings(simulations), learning_rate=1e-3, final_learning_rate=2e-4)


def _one_shot_settings(simulations: int) -> Ppo:
    """Faster: GDP draws every unit by itself, and must be nearly certain of most before its samples are any good.

    A larger budget buys more updates and more samples in each, lest it is certain long before the end.
    """
    samples = max(SAMPLES, isqrt(simulations // 4))
    return replace(_settings(simulations, samples), learning_rate=4e-3, final_learning_rate=8e-4)


def _sequential_settings(simulations: int) -> Ppo:
    """Bolder: a trained decoder is nearly certain everywhere, and would otherwise try the same placement again."""
    settings = _settings(simulations)
    return replace(settings, learning_rate=1e-3, final_learning_rate=1e-3, entropy=0.06, final_entropy=0.02)
