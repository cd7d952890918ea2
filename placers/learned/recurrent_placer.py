"""RecurrentPlacer: what ColocRL's and HDP's policies have in common as placers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from envs.costs.costs import costs_of
from envs.objectives import evaluator_of
from envs.placer_result import PlacerResult
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.problem import Problem
from placers.learned.policy_file import check_asked, load_as, spec_of

HIDDEN = 128  # a quarter of the authors', for speed


@dataclass(frozen=True, eq=False)
class RecurrentPlacer(ABC):
    """A policy for one number of devices as a placer: its most likely choices, or the best of several placements."""

    kind: ClassVar[str]  # the placer's name

    policy: Any = None  # none: an untrained one for as many devices as there are
    name: str = ""
    samples: int = 0  # placements to choose from, the greedy one among them; 0: as many as the budget allows
    hidden: int = HIDDEN  # width of the LSTMs of an untrained policy

    @staticmethod
    @abstractmethod
    def new(network: str, seed: int) -> Any:
        """An untrained policy from a network's spec and a seed."""

    @classmethod
    def built(cls, checkpoint: str, samples: int, hidden: int, untrained: bool) -> Self:
        """With the policy in a checkpoint folder, or, if that is asked for, an untrained one for any number of devices.

        Raises InputError without either.
        """
        check_asked(cls.kind, checkpoint, untrained)
        width = hidden if hidden != HIDDEN else 0
        name = spec_of(cls.kind, checkpoint=checkpoint, samples=samples, hidden=width, untrained=untrained)
        return cls(load_as(Path(checkpoint), cls.kind, cls.new)[0] if checkpoint else None, name, samples, hidden)

    def policy_for(self, problem: Problem) -> Any:
        """The trained policy, or an untrained one for the problem's number of devices."""
        untrained = f"{self.kind}:devices={len(problem.cluster)},hidden={self.hidden}"
        return self.policy or type(self).new(untrained, 0)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The greedy placement, unsimulated, if there is but one to choose from; else the best by simulation.

        Raises InputError if the policy is for another number of devices.
        """
        limit_torch_threads()
        evaluator = evaluator_of(problem)
        policy = self.policy_for(problem)
        batch = policy.stack([policy.view(problem, costs_of(problem))])
        choices = max(1, min(self.samples or budget, budget))
        placements = policy.candidates(batch, choices, torch.Generator().manual_seed(seed))
        placements = problem.made_allowed(placements)
        best = evaluator.run_batch(placements).best() if choices > 1 else 0
        return PlacerResult.of_units(problem, placements[best], self.name, seed, simulations=evaluator.simulations)
