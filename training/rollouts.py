"""Rollouts of PPO: sampled placements of a few problems, evaluated by their objectives and turned into advantages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic

import numpy as np
import torch
from torch import Tensor

from envs.prepared_problem import PreparedProblem
from envs.simulation.simulator import Outcomes
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.learned.policy import A, Batch, Policy, View
from training.advantage import MovingAverage
from training.labels.schedule import LabelSchedule


@dataclass(eq=False)
class PpoProblem(Generic[View]):
    """One problem for many rollouts of one policy."""

    prepared: PreparedProblem
    see: Callable[[Problem], View]  # makes what the policy sees of it
    baseline: MovingAverage = field(default_factory=MovingAverage)  # of its rewards, where they are compared with it
    schedule: LabelSchedule = field(default_factory=LabelSchedule)  # of the searches for its label, the incumbent

    @cached_property
    def view(self) -> View:
        """What the policy sees of it, made when the policy first meets it: of many problems that takes seconds."""
        return self.see(self.prepared.problem)


AdvantageFunction = Callable[[PpoProblem[View], Outcomes], Floats]


@dataclass(frozen=True, eq=False)
class PpoRollouts(Generic[Batch, A]):
    """What one update learns from."""

    batch: Batch
    action: A  # several samples of each problem
    advantages: Tensor  # (problems, samples)
    step_seconds: Tensor  # (problems, samples); infinite for what does not fit
    mean_ratio: float  # geometric mean over problems of step seconds / lower bound, fitting samples
    fitting: float  # share of the samples that fit

    @classmethod
    def collect(
        cls,
        policy: Policy[View, Batch, A],
        problems: Sequence[PpoProblem[View]],
        samples: int,
        generator: torch.Generator,
        advantages_of: AdvantageFunction[View],
    ) -> PpoRollouts[Batch, A]:
        """Draw and simulate `samples` placements of each problem; `advantages_of` gives their (samples,) advantages."""
        batch = policy.stack([each.view for each in problems])
        action = policy.act(batch, samples, generator)
        prepared = [each.prepared for each in problems]
        advantages, logs, fitting = [], [], []
        with ThreadPoolExecutor() as pool:  # the simulator leaves the interpreter's lock to others
            orders = policy.drawn_orders(batch, action)
            results = list(pool.map(PreparedProblem.evaluate, prepared, action.devices.numpy(), orders))
        for problem, outcomes in zip(problems, results, strict=True):
            advantages.append(advantages_of(problem, outcomes))
            fitting.append(outcomes.fits.mean())
            if outcomes.fits.any():
                logs.append(np.log(outcomes.step_seconds[outcomes.fits] / problem.prepared.lower_bound).mean())
        return PpoRollouts(
            batch,
            action,
            torch.from_numpy(np.stack(advantages)).float(),
            torch.from_numpy(np.stack([np.where(each.fits, each.step_seconds, np.inf) for each in results])),
            float(np.exp(np.mean(logs))) if logs else float("nan"),
            float(np.mean(fitting)),
        )
