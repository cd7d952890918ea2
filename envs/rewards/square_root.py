"""GDP's reward: nothing until the end, then -sqrt(step seconds), or -10 for a placement that does not fit."""

import numpy as np

from envs.rewards import Penalty, RewardFunction
from envs.simulation.simulator import Outcome

LAST_ONLY = True
NOT_FITTING = -10.0  # GDP, section 4.1: reward of an invalid placement


def build() -> RewardFunction:
    """The reward."""
    return square_root


def square_root(_before: Outcome, after: Outcome, last: bool, _penalty: Penalty) -> float:
    """What fits is a matter of each device's own memory here: the penalty is not read."""
    if not last:
        return 0.0
    return -float(np.sqrt(after.step_seconds)) if after.fits else NOT_FITTING
