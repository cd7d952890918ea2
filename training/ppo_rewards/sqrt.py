"""GDP's reward: minus the square root of the step time (Zhou et al. 2019, section 4.1)."""

from __future__ import annotations

import numpy as np

from training.ppo_rewards import PpoReward


def build() -> PpoReward:
    """(plans,) rewards of (plans,) step seconds over the lower bound."""
    return lambda ratios: -np.sqrt(ratios)
