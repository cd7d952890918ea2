"""Rewards: what a decider is told after each step of an environment.

A reward is one function here, (before, after, last, penalty) -> float: the outcomes of the placement before and after
the step, whether the step is the episode's last, and what memory above the threshold costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from envs.simulator import Outcome
from graphs.by_name import unknown
from graphs.cluster import GIB
from graphs.errors import InputError

PENALTY_PER_GB = 2.0  # seconds; Placeto, the authors' code (a GB is taken for a GiB)
LONGEST_SECONDS = 10.0  # Placeto, the authors' code: penalised seconds are clipped there
NOT_FITTING = -10.0  # GDP, section 4.1: reward of an invalid placement


@dataclass(frozen=True)
class Penalty:
    """What memory above a threshold costs in Placeto's rewards, as in the authors' code unless told otherwise."""

    memory_bytes: float  # threshold M, of the fullest device
    per_gb: float = PENALTY_PER_GB  # seconds for each GiB above it
    longest_seconds: float = LONGEST_SECONDS  # penalised seconds are clipped there


class Reward(Protocol):
    """A reward whose penalty is settled."""

    def __call__(self, before: Outcome, after: Outcome, last: bool) -> float:
        """Reward of one step."""
        ...


def penalised_seconds(outcome: Outcome, penalty: Penalty) -> float:
    """Placeto's rho = min(step seconds + 2 max(0, peak GB - M), 10), with the fullest device's peak."""
    excess = max(0.0, float(outcome.peak_bytes.max()) - penalty.memory_bytes)
    return min(outcome.step_seconds + penalty.per_gb * excess / GIB, penalty.longest_seconds)


def terminal(_before: Outcome, after: Outcome, last: bool, penalty: Penalty) -> float:
    """Placeto's reward 0: nothing until the end of the episode, then -rho."""
    return -penalised_seconds(after, penalty) if last else 0.0


def improvement(before: Outcome, after: Outcome, _last: bool, penalty: Penalty) -> float:
    """Placeto's reward 1: by how much this step lowered rho; they add up to how much the episode did."""
    return penalised_seconds(before, penalty) - penalised_seconds(after, penalty)


def square_root(_before: Outcome, after: Outcome, last: bool, _penalty: Penalty) -> float:
    """GDP's reward: nothing until the end, then -sqrt(step seconds), or -10 for a placement that does not fit.

    What fits is a matter of each device's own memory here: the penalty is not read.
    """
    if not last:
        return 0.0
    return -float(np.sqrt(after.step_seconds)) if after.fits else NOT_FITTING


def find_reward(name: str, penalty: Penalty) -> Reward:
    """The reward of that name with its penalty. Raises InputError, with what exists, for an unknown name."""
    if name not in _REWARDS:
        raise InputError(unknown("reward", name, _REWARDS))
    function = _REWARDS[name]

    def settled(before: Outcome, after: Outcome, last: bool) -> float:
        return function(before, after, last, penalty)

    return settled


_REWARDS: dict[str, Callable[[Outcome, Outcome, bool, Penalty], float]] = {
    function.__name__: function for function in (terminal, improvement, square_root)
}
