"""Placeto's reward 1: by how much each step lowered the penalised seconds; they add up to how much the episode did."""

from envs.rewards import Penalty, RewardFunction, penalised_seconds
from envs.simulation.simulator import Outcome


def build() -> RewardFunction:
    """Rho before the step less rho after it."""
    return improvement


def improvement(before: Outcome, after: Outcome, _last: bool, penalty: Penalty) -> float:
    """The same at every step."""
    return penalised_seconds(before, penalty) - penalised_seconds(after, penalty)
