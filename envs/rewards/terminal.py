"""Placeto's reward 0: nothing until the end of the episode, then minus its penalised seconds."""

from envs.rewards import Penalty, RewardFunction, penalised_seconds
from envs.simulation.simulator import Outcome

LAST_ONLY = True


def build() -> RewardFunction:
    """Minus rho of the last placement."""
    return terminal


def terminal(_before: Outcome, after: Outcome, last: bool, penalty: Penalty) -> float:
    """Nothing before the last step."""
    return -penalised_seconds(after, penalty) if last else 0.0
