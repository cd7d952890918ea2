"""Rollouts: sampled placements of a few problems, simulated and turned into advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from envs.bounds import lower_bound
from envs.simulator import Simulator
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.policies.batch import Batch
from placers.policies.features import Observation, observe
from placers.policies.one_shot import OneShotPolicy
from training.advantage import rewards, standardised


class Arena:
    """One problem made ready for many rollouts: its simulator, its observation, and the best placement seen."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.simulator = Simulator(problem)
        self.observation: Observation = observe(problem, self.simulator.costs)
        self.memory_bytes = problem.cluster.memory_bytes
        self.scale_seconds = max(lower_bound(problem), 1e-9)  # a graph without costs has a bound of 0
        self.best_seconds = np.inf  # of the plans that fit
        self.best_placement: Ints | None = None  # (units,)

    def remember(self, placements: Ints, step_seconds: np.ndarray, fits: np.ndarray) -> None:
        """Keep the fastest fitting placement of (plans, units)."""
        seconds = np.where(fits, step_seconds, np.inf)
        if seconds.min() < self.best_seconds:
            self.best_seconds = float(seconds.min())
            self.best_placement = placements[seconds.argmin()].copy()


@dataclass(frozen=True, eq=False)
class Rollouts:
    """What one update learns from."""

    batch: Batch
    placements: Tensor  # (problems, samples, units) devices
    advantages: Tensor  # (problems, samples)
    log_probability: Tensor  # (problems, samples, units) under the policy that drew them
    mean_ratio: float  # geometric mean over problems of step seconds / lower bound, fitting samples
    fitting: float  # share of the samples that fit

    @classmethod
    def collect(
        cls, policy: OneShotPolicy, arenas: Sequence[Arena], samples: int, generator: torch.Generator
    ) -> Rollouts:
        """Draw and simulate `samples` placements of each arena's problem."""
        batch = Batch.of([arena.observation for arena in arenas])
        placements = policy.act(batch, samples, generator)
        advantages, logs, fitting = [], [], []
        for arena, drawn in zip(arenas, placements.numpy(), strict=True):
            mine = np.ascontiguousarray(drawn[:, : arena.problem.graph.num_units])
            outcomes = arena.simulator.run_batch(mine)
            arena.remember(mine, outcomes.step_seconds, outcomes.fits)
            advantages.append(standardised(rewards(outcomes, arena.memory_bytes, arena.scale_seconds)))
            fitting.append(outcomes.fits.mean())
            if outcomes.fits.any():
                logs.append(np.log(outcomes.step_seconds[outcomes.fits] / arena.scale_seconds).mean())
        with torch.no_grad():
            before = policy.score(batch, placements).log_probability
        return cls(
            batch,
            placements,
            torch.from_numpy(np.stack(advantages)).float(),
            before,
            float(np.exp(np.mean(logs))) if logs else float("nan"),
            float(np.mean(fitting)),
        )
