"""Placeto: a policy goes over the ops and moves one at a time, seeing where all are (Addanki et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from envs.gym.iterative import Mdp, Rules
from envs.gym.observed_problem import ObservedProblem
from envs.objectives import evaluator_of
from envs.placer_result import PlacerResult
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.placeto.policy import NAME, PlacetoPolicy, new_placeto, play
from placers.learned.placeto.states import Kinship
from placers.learned.policy_file import check_asked, load_as, spec_of

LEARNED = True  # means nothing before it is trained
UNTRAINED = "placeto:width=8,rounds=4,mean=true,explore=0.05"  # sums make an untrained policy certain of one device
MOST_EPISODES = 16  # what is left of a budget is spent on what they passed through


@dataclass(frozen=True, eq=False)
class Placeto:
    """A policy as a placer: where its greedy episode ends, or the best placement that several passed through."""

    policy: PlacetoPolicy
    name: str = NAME
    samples: int = 0  # placements to choose from, the greedy one among them; 0: as many as the budget allows

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The best of at most `budget` placements by simulation; of one, the greedy episode's end, unsimulated.

        The ends of all episodes come first, then what they passed through, the latest first. Episodes start with all
        units on the fastest device. Raises InputError if the policy is for another number of devices.
        """
        limit_torch_threads()
        self.policy.check(problem.cluster)
        observed = ObservedProblem.of(problem)
        choices = max(1, min(self.samples or budget, budget))
        episodes = min(MOST_EPISODES, choices)
        trails = self._trails(observed, episodes, seed)
        passed = [problem.made_allowed(ends) for at_a_time in reversed(trails) for ends in at_a_time]
        chosen = _distinct(passed)[:choices]
        evaluator = evaluator_of(problem)
        best = evaluator.run_batch(np.stack(chosen)).best() if len(chosen) > 1 else 0
        return PlacerResult.of_units(problem, chosen[best], self.name, seed, simulations=evaluator.simulations)

    def _trails(self, observed: ObservedProblem, count: int, seed: int) -> list[list[Ints]]:
        """After each step, the (units,) placement of each episode, the greedy one first."""
        rng = np.random.default_rng(seed)
        mdp = Mdp(Rules(start="single", order=self.policy.shape.order))
        episodes = [mdp.begin(0, observed, rng) for _ in range(count)]
        generator = torch.Generator().manual_seed(seed)
        turns = play(self.policy, episodes, {observed: Kinship.of(observed.problem)}, generator, greedy=1)
        return [[episode.progress.placement.copy() for episode in episodes] for _ in turns]


def build(*, checkpoint: str = "", network: str = UNTRAINED, samples: int = 0, untrained: bool = False) -> Placeto:
    """Placeto with the policy in a checkpoint folder; an untrained one, of a shape, only if that is asked for."""
    check_asked(NAME, checkpoint, untrained)
    policy = load_as(Path(checkpoint), NAME, new_placeto)[0] if checkpoint else new_placeto(network, seed=0)
    return Placeto(policy, spec_of(NAME, checkpoint=checkpoint, samples=samples, untrained=untrained), samples)


def _distinct(placements: list[Ints]) -> list[Ints]:
    """The placements, each once, in order of appearance."""
    return list({placement.tobytes(): placement for placement in placements}.values())
