"""Rollouts: sampled placements of a few problems, evaluated by their objectives and turned into advantages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from envs.bounds import lower_bound
from envs.costs.costs import Costs, costs_of
from envs.objectives import evaluator_of
from envs.simulation.simulator import Outcomes
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem
from placers.learned.gdp.policy import Scores
from training.advantage import MovingAverage


class Policy(Protocol):
    """What a trainer asks of a policy, which is a module; each kind of policy has a batch of its own."""

    def view(self, problem: Problem, costs: Costs) -> Any:
        """What the policy sees of a problem, made once. Raises InputError if the policy is not for such a problem."""
        ...

    def stack(self, views: Sequence[Any]) -> Any:
        """Several views as a batch, whose `unit_mask` (problems, columns) says what of an action is decided."""
        ...

    def act(self, batch: Any, samples: int, generator: torch.Generator) -> Tensor:
        """Draw actions, (problems, samples, columns): the devices of the units first, then what is the policy's own."""
        ...

    def score(self, batch: Any, placements: Tensor) -> Scores:
        """Log-probabilities and entropy of actions (problems, samples, columns), differentiable."""
        ...

    def actions_of(self, batch: Any, placements: Sequence[Ints]) -> Tensor:
        """(problems, 1, columns) actions that lead to placements, (units,) each."""
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
    """One problem made ready for many rollouts: what evaluates it, its observation, and the best placement seen."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.evaluator = evaluator_of(problem)
        self.memory_bytes = problem.cluster.memory_bytes
        self.scale_seconds = max(lower_bound(problem), 1e-9)  # a graph without costs has a bound of 0
        self.best_seconds = np.inf  # of the plans that fit, by the objective
        self.best_placement: Ints | None = None  # (units,)
        self.baseline = MovingAverage()  # of its rewards, for trainers that compare with it
        self._views: dict[type[Policy], Any] = {}

    def view(self, policy: Policy) -> Any:
        """What policies of this kind see of the problem."""
        kind = type(policy)
        if kind not in self._views:
            self._views[kind] = policy.view(self.problem, costs_of(self.problem))
        return self._views[kind]

    def simulate(self, drawn: Ints) -> Outcomes:
        """Evaluate placements (plans, units or more, the rest being padding) and remember the best.

        A unit that was drawn where it may not run counts as where its plan would have it.
        """
        placements = self.problem.made_allowed(np.ascontiguousarray(drawn[:, : self.problem.graph.num_units]))
        outcomes = self.evaluator.run_batch(placements)
        self._remember(placements, outcomes)
        return outcomes

    def _remember(self, placements: Ints, outcomes: Outcomes) -> None:
        """Keep the fastest fitting placement of (plans, units)."""
        seconds = np.where(outcomes.fits, outcomes.step_seconds, np.inf)
        if seconds.min() < self.best_seconds:
            self.best_seconds = float(seconds.min())
            self.best_placement = placements[seconds.argmin()].copy()


Judge = Callable[[Arena, Outcomes], Floats]


@dataclass(frozen=True, eq=False)
class Rollouts:
    """What one update learns from."""

    batch: Any  # of the policy's kind
    placements: Tensor  # (problems, samples, columns) actions: the devices of the units first
    advantages: Tensor  # (problems, samples)
    mean_ratio: float  # geometric mean over problems of step seconds / lower bound, fitting samples
    fitting: float  # share of the samples that fit

    @classmethod
    def collect(
        cls, policy: Policy, arenas: Sequence[Arena], samples: int, generator: torch.Generator, judge: Judge
    ) -> Rollouts:
        """Draw and simulate `samples` placements of each arena's problem; `judge` gives the advantages (samples,)."""
        batch = policy.stack([arena.view(policy) for arena in arenas])
        placements = policy.act(batch, samples, generator)
        advantages, logs, fitting = [], [], []
        with ThreadPoolExecutor() as pool:  # the simulator leaves the interpreter's lock to others
            results = list(pool.map(Arena.simulate, arenas, placements.numpy()))
        for arena, outcomes in zip(arenas, results, strict=True):
            advantages.append(judge(arena, outcomes))
            fitting.append(outcomes.fits.mean())
            if outcomes.fits.any():
                logs.append(np.log(outcomes.step_seconds[outcomes.fits] / arena.scale_seconds).mean())
        return cls(
            batch,
            placements,
            torch.from_numpy(np.stack(advantages)).float(),
            float(np.exp(np.mean(logs))) if logs else float("nan"),
            float(np.mean(fitting)),
        )
