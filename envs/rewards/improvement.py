"""Placeto's reward 1: by how much each step lowered the penalised seconds; they add up to how much the episode did."""

from __future__ import annotations

from envs.rewards import RewardFunction, penalised_seconds


def build() -> RewardFunction:
    """Rho before the step less rho after it."""
    return lambda before, after, _, penalty: penalised_seconds(before, penalty) - penalised_seconds(after, penalty)
