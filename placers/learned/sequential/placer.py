"""Sequential decoder: a learned placer that places unit by unit, looking at every device each time. Ours, no paper's.

GraphSAGE and a Transformer layer encode the problem, as in GDP (Zhou et al. 2019); the devices are then chosen one
after another, in HEFT's order (Topcuoglu et al. 2002) unless the policy has another, as a list scheduler with a
learned rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from envs.costs.costs import costs_of
from envs.objectives import evaluator_of
from envs.placer_result import PlacerResult
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.problem import Problem
from placers.learned.policy_file import check_asked, load_as, spec_of
from placers.learned.sequential.policy import NAME, SequentialPolicy, new_sequential

LEARNED = True  # means nothing before it is trained
HOTTEST = 4.0  # temperature of the last sample: a trained policy is sure of itself, and its samples hardly differ
PASSES = 2  # over all units, of which the second sees the first; a third changed nothing
FULLEST, EMPTIEST = 0.85, 0.7  # shares of the memory that the greedy placement and the last sample may fill by estimate


@dataclass(frozen=True, eq=False)
class Sequential:
    """A sequential policy as a placer: its greedy placement, or the best of several."""

    policy: SequentialPolicy
    name: str = NAME
    samples: int = 0  # placements to choose from, the greedy one among them; 0: as many as the budget allows

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The greedy placement, unsimulated, if there is but one to choose from; else the best by simulation."""
        limit_torch_threads()
        evaluator = evaluator_of(problem)
        batch = self.policy.stack([self.policy.view(problem, costs_of(problem))])
        choices = max(1, min(self.samples or budget, budget))
        temperatures = np.linspace(1.0, HOTTEST, choices)
        shares = np.linspace(FULLEST, EMPTIEST, choices)
        placements = self.policy.candidates(batch, temperatures, shares, seed, passes=PASSES)[-1]
        placements = problem.made_allowed(placements)
        best = evaluator.run_batch(placements).best() if choices > 1 else 0
        return PlacerResult.of_units(problem, placements[best], self.name, seed, simulations=evaluator.simulations)


def build(*, checkpoint: str = "", network: str = NAME, samples: int = 0, untrained: bool = False) -> Sequential:
    """The decoder with the policy in a checkpoint folder; an untrained one, of a shape, only if that is asked for."""
    check_asked(NAME, checkpoint, untrained)
    policy = load_as(Path(checkpoint), NAME, new_sequential)[0] if checkpoint else new_sequential(network, seed=0)
    return Sequential(policy, spec_of(NAME, checkpoint=checkpoint, samples=samples, untrained=untrained), samples)
