"""Minus the logarithm of the step time: a tenth less counts alike whether a plan is good or bad. Ours, no paper's."""

from __future__ import annotations

import numpy as np

from training.ppo_rewards import PpoReward


def build() -> PpoReward:
    """(plans,) rewards of (plans,) step seconds over the lower bound."""
    return lambda ratios: -np.log(np.maximum(ratios, 1e-9))
