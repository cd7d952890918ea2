"""GDP's reward: minus the square root of the step time (Zhou et al. 2019, section 4.1)."""

import numpy as np

from graphs.op_graph import Floats
from training.ppo_rewards import PpoReward


def build() -> PpoReward:
    """The reward."""
    return sqrt


def sqrt(ratios: Floats) -> Floats:
    """(plans,) rewards of (plans,) step seconds over the lower bound."""
    paid: Floats = -np.sqrt(ratios)
    return paid
