"""Fine-tuning: a policy learns one problem, by the trainer that it declares, within a number of simulations."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.plans.placer_result import PlacerResult
from graphs.foundation.errors import InputError
from graphs.foundation.progress import progress_bar
from graphs.problem import Problem
from placers.learned.learned_placer import PolicyPlacer
from placers.learned.policy import SavedPolicy
from placers.learned.settings import FEW_SAMPLES
from training.runs.trainers import fine_tuner_of


@dataclass(frozen=True, eq=False)
class FineTuned:
    """What fine-tuning on a problem gave: a policy, and the best fitting plan that it tried, by the objective."""

    policy: SavedPolicy
    result: PlacerResult
    history: tuple[tuple[int, float], ...]  # (simulations, best seconds so far)


@dataclass(frozen=True, eq=False)
class FineTuner:
    """A learned placer that spends its budget of simulations on fine-tuning before it answers."""

    start: PolicyPlacer[Any]
    on_tuned: Callable[[FineTuned], None] | None = None  # receives what `place` found on the way to its plan
    on_progress: Callable[[int, float], None] | None = None  # receives each line of the history as it comes
    from_scratch: bool = False  # the start is untrained: without simulations it has nothing to say

    @property
    def name(self) -> str:
        """The starting placer's name, marked."""
        return f"{self.start.name}+finetuned"

    @property
    def divides_batch(self) -> bool:
        """Whether plans may divide the batch, as the starting placer's."""
        return self.start.divides_batch

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
        for an objective that the policy's training does not know, and as `fine_tuner_of` does.
        """
        policy = copy.deepcopy(self.start.policy_for(problem))
        kind_of_trainer = fine_tuner_of(self.start, policy)
        if kind_of_trainer.knows_step_times_only:
            remedy = "another policy, or this one without fine-tuning"
            problem.check_step_time(f"{self.name}, by REINFORCE,", remedy, measured=True)
        opening = self.start.place(problem, seed=seed, budget=max(0, min(FEW_SAMPLES, simulations - 1)))
        plan, spent, history = opening.plan, opening.simulations, list[tuple[int, float]]()
        if simulations > 0:
            spent += 1  # the plan to beat
            left = simulations - spent
            trainer = kind_of_trainer.of(policy, [problem], policy.fine_tuning(problem, left), seed)
            with progress_bar(self.name, total=simulations, unit="simulation", leave=False) as bar:
                for taken, best in trainer.fine_tune(plan, left):
                    history.append((spent + taken, best.value))
                    if self.on_progress is not None:
                        self.on_progress(*history[-1])
                    bar.update(spent + taken - bar.n)
            spent = history[-1][0]
            plan = best.plan(problem) or plan
        result = PlacerResult(plan, self.name, seed, spent, tuple(_improvements(history)))
        return FineTuned(policy, result, tuple(history))


def _improvements(history: Sequence[tuple[int, float]]) -> Iterator[tuple[int, float]]:
    """The moments at which a fitting plan was found that is faster than those before."""
    best = np.inf
    for simulations, seconds in history:
        if seconds < best:
            best = seconds
            yield simulations, seconds
