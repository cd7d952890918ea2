"""Rollouts: sampled placements of a few problems, simulated and turned into advantages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from envs.bounds import lower_bound
from envs.simulator import Outcomes, Simulator
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.policies.batch import Batch
from placers.policies.features import Observation, observe
from placers.policies.one_shot import Scores
from placers.policies.sequential import SequentialBatch, SequentialPolicy
from placers.policies.sequential_board import Board
from training.advantage import rewards, standardised


class Policy(Protocol):
    """What a trainer asks of a policy, which is a module; each kind of policy has a batch of its own."""

    def act(self, batch: Any, samples: int, generator: torch.Generator) -> Tensor:
        """Draw placements, (problems, samples, units) devices."""
        ...

    def score(self, batch: Any, placements: Tensor) -> Scores:
        """Log-probabilities and entropy of placements (problems, samples, units), differentiable."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """As of a module."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """As of a module."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """As of a module."""
        ...


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

    @cached_property
    def board(self) -> Board:
        """The problem as sequential policies play it."""
        return Board.of(self.problem, self.simulator.costs)

    def simulate(self, drawn: Ints) -> Outcomes:
        """Simulate placements (plans, units or more, the rest being padding) and remember the best."""
        placements = np.ascontiguousarray(drawn[:, : self.problem.graph.num_units])
        outcomes = self.simulator.run_batch(placements)
        self._remember(placements, outcomes)
        return outcomes

    def _remember(self, placements: Ints, outcomes: Outcomes) -> None:
        """Keep the fastest fitting placement of (plans, units)."""
        seconds = np.where(outcomes.fits, outcomes.step_seconds, np.inf)
        if seconds.min() < self.best_seconds:
            self.best_seconds = float(seconds.min())
            self.best_placement = placements[seconds.argmin()].copy()


@dataclass(frozen=True, eq=False)
class Rollouts:
    """What one update learns from."""

    batch: Batch | SequentialBatch
    placements: Tensor  # (problems, samples, units) devices
    advantages: Tensor  # (problems, samples)
    log_probability: Tensor  # (problems, samples, units) under the policy that drew them
    mean_ratio: float  # geometric mean over problems of step seconds / lower bound, fitting samples
    fitting: float  # share of the samples that fit

    @classmethod
    def collect(
        cls, policy: Policy, arenas: Sequence[Arena], samples: int, generator: torch.Generator, *, reward: str = "sqrt"
    ) -> Rollouts:
        """Draw and simulate `samples` placements of each arena's problem; `reward` is a shape of `rewards`."""
        batch = batch_for(policy, arenas)
        placements = policy.act(batch, samples, generator)
        advantages, logs, fitting = [], [], []
        with ThreadPoolExecutor() as pool:  # the simulator leaves the interpreter's lock to others
            results = list(pool.map(Arena.simulate, arenas, placements.numpy()))
        for arena, outcomes in zip(arenas, results, strict=True):
            advantages.append(standardised(rewards(outcomes, arena.memory_bytes, arena.scale_seconds, shape=reward)))
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


def batch_for(policy: Policy, arenas: Sequence[Arena]) -> Batch | SequentialBatch:
    """The problems of arenas, as this policy takes them."""
    observations = [arena.observation for arena in arenas]
    if isinstance(policy, SequentialPolicy):
        return SequentialBatch.of(observations, [arena.board for arena in arenas])
    return Batch.of(observations)
