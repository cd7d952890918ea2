"""Placeto's reward 0: nothing until the end of the episode, then minus its penalised seconds."""

from __future__ import annotations

from envs.rewards import RewardFunction, penalised_seconds

LAST_ONLY = True


def build() -> RewardFunction:
    """Minus rho of the last placement."""
    return lambda _, after, last, penalty: -penalised_seconds(after, penalty) if last else 0.0
