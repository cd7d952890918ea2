"""GDP: a GraphSAGE and Transformer policy places all ops at once (Zhou et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from envs.costs.costs import costs_of
from envs.held_memory import HeldMemory
from envs.objectives import evaluator_of
from envs.placer_result import PlacerResult
from graphs.foundation.torch_threads import limit_torch_threads
from graphs.problem import Problem
from placers.learned.batch import Batch
from placers.learned.decoding import candidates
from placers.learned.features import observe
from placers.learned.gdp.policy import OneShotPolicy
from placers.learned.policy_file import check_asked, load_policy, new_policy, spec_of

LEARNED = True  # means nothing before it is trained


@dataclass(frozen=True, eq=False)
class Gdp:
    """A one-shot policy as a placer: its most likely placement, or the best of several."""

    policy: OneShotPolicy
    name: str = "gdp"
    samples: int = 0  # placements to choose from, the greedy one among them; 0: as many as the budget allows

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The most likely placement, unsimulated, if there is but one to choose from; else the best by simulation."""
        limit_torch_threads()
        evaluator = evaluator_of(problem)
        with torch.no_grad():
            logits = self.policy.logits(Batch.of([observe(problem, costs_of(problem))]))[0]
        choices = max(1, min(self.samples or budget, budget))
        generator = torch.Generator().manual_seed(seed)
        placements = candidates(logits, HeldMemory.of(problem), choices, generator)
        placements = problem.made_allowed(placements)
        best = evaluator.run_batch(placements).best() if choices > 1 else 0
        return PlacerResult.of_units(problem, placements[best], self.name, seed, simulations=evaluator.simulations)


def build(
    *, checkpoint: str = "", network: str = "graphsage_transformer", samples: int = 0, untrained: bool = False
) -> Gdp:
    """GDP with the policy in a checkpoint folder; an untrained one, over a network, only if that is asked for."""
    check_asked("gdp", checkpoint, untrained)
    policy = load_policy(Path(checkpoint))[0] if checkpoint else new_policy(network, seed=0)
    return Gdp(policy, spec_of("gdp", checkpoint=checkpoint, samples=samples, untrained=untrained), samples)
