"""Minus the logarithm of the step time: a tenth less counts alike whether a plan is good or bad. Ours, no paper's."""

import numpy as np

from graphs.op_graph import Floats
from training.ppo_rewards import PpoReward


def build() -> PpoReward:
    """The reward."""
    return log


def log(ratios: Floats) -> Floats:
    """(plans,) rewards of (plans,) step seconds over the lower bound."""
    paid: Floats = -np.log(np.maximum(ratios, 1e-9))
    return paid
