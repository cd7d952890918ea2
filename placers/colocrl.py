"""ColocRL: a sequence-to-sequence LSTM places op groups one by one (Mirhoseini et al. 2017)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from envs.plan import Plan
from envs.simulator import Simulator
from graphs.problem import Problem
from placers.policies.colocrl import NAME, ColocRlPolicy, new_colocrl
from placers.policies.policy_file import load_as

LEARNED = True  # means nothing before it is trained
HIDDEN = 128  # a quarter of the authors', for speed


@dataclass(frozen=True, eq=False)
class ColocRl:
    """A ColocRL policy as a placer: its most likely choices, or the best of several placements."""

    policy: ColocRlPolicy | None = None  # none: an untrained one for as many devices as there are
    name: str = NAME
    samples: int = 0  # placements to choose from, the greedy one among them; 0: as many as the budget allows
    hidden: int = HIDDEN  # width of the LSTMs of an untrained policy

    def policy_for(self, problem: Problem) -> ColocRlPolicy:
        """The trained policy, or an untrained one for the problem's number of devices."""
        return self.policy or new_colocrl(f"{NAME}:devices={len(problem.cluster)},hidden={self.hidden}", seed=0)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> Plan:
        """The greedy placement, unsimulated, if there is but one to choose from; else the best by simulation.

        Raises InputError if the policy is for another number of devices.
        """
        simulator = Simulator(problem)
        policy = self.policy_for(problem)
        batch = policy.stack([policy.view(problem, simulator.costs)])
        choices = max(1, min(self.samples or budget, budget))
        placements = policy.candidates(batch, choices, torch.Generator().manual_seed(seed))
        best = simulator.run_batch(placements).best() if choices > 1 else 0
        return Plan.of_units(problem, placements[best], placer=self.name, seed=seed, simulations=simulator.simulations)


def build(*, checkpoint: str = "", samples: int = 0, hidden: int = HIDDEN) -> ColocRl:
    """ColocRL with the policy in a checkpoint folder, for one number of devices, or an untrained one for any."""
    knobs = [f"checkpoint={checkpoint}"] * bool(checkpoint) + [f"samples={samples}"] * bool(samples)
    knobs += [f"hidden={hidden}"] * (hidden != HIDDEN)
    name = ":".join([NAME, ",".join(knobs)] if knobs else [NAME])
    return ColocRl(load_as(Path(checkpoint), NAME, new_colocrl)[0] if checkpoint else None, name, samples, hidden)
