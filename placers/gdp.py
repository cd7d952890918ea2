"""GDP: a GraphSAGE and Transformer policy places all ops at once (Zhou et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from envs.plan import Plan
from envs.simulator import Simulator
from graphs.problem import Problem
from placers.policies.batch import Batch
from placers.policies.features import observe
from placers.policies.one_shot import OneShotPolicy
from placers.policies.policy_file import load_policy, new_policy


@dataclass(frozen=True, eq=False)
class Gdp:
    """A one-shot policy as a placer: its most likely placement, or the best of several."""

    policy: OneShotPolicy
    name: str = "gdp"

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> Plan:
        """With a budget of one, the greedy placement, unsimulated; else the best of it and budget - 1 samples."""
        simulator = Simulator(problem)
        batch = Batch.of([observe(problem, simulator.costs)])
        placements = self.policy.greedy(batch)
        if budget > 1:
            generator = torch.Generator().manual_seed(seed)
            samples = self.policy.act(batch, budget - 1, generator)[0]
            placements = torch.cat([placements, samples])
            outcomes = simulator.run_batch(placements.numpy())
            best = outcomes.best()
            placements = placements[best : best + 1]
        return Plan.of_units(
            problem, placements[0].numpy(), placer=self.name, seed=seed, simulations=simulator.simulations
        )


def build(*, checkpoint: str = "", network: str = "graphsage_transformer") -> Gdp:
    """GDP with the policy in a checkpoint folder, or an untrained one."""
    if not checkpoint:
        return Gdp(new_policy(network, seed=0))
    policy, _ = load_policy(Path(checkpoint))
    return Gdp(policy, f"gdp:checkpoint={checkpoint}")
