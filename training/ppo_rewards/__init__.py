"""Rewards of PPO: what a placement that fits is worth. An extension folder: one file, one reward.

The `build` of each file returns a function of (plans,) step seconds over the problem's lower bound, which gives
(plans,) rewards. The bound makes graphs of 20 ms and of 2 s count alike. What does not fit is paid by
`training.learning.advantage`.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.user_code import user_code
from graphs.op_graph import Floats

FOLDER = "training.ppo_rewards"
PpoReward = Callable[[Floats], Floats]


def load_ppo_reward(spec: str) -> PpoReward:
    """The reward that a spec names, such as "sqrt" or "my.py:build". Raises InputError for what is none."""
    reward: PpoReward = by_name.build(FOLDER, spec)
    return reward


def checked(spec: str, built: Any) -> PpoReward:
    """What `build` of a user's file or of another package returned, as a reward whose values are checked.

    Raises InputError for what is no function; the reward raises it for what is not a finite number for each plan.
    """
    if not callable(built):
        raise InputError(f"{spec!r}: expected a function of (plans,) step seconds, got {type(built).__name__}")
    mine = by_name.own(spec)

    def reward(ratios: Floats) -> Floats:
        with user_code(mine.file) if mine else nullcontext():
            paid = built(ratios)
        values = np.asarray(paid)
        if values.shape != ratios.shape or values.dtype.kind not in "fiu" or not np.isfinite(values).all():
            raise InputError(f"reward {spec!r} paid {paid!r}; expected {len(ratios)} finite numbers, one for each plan")
        return values.astype(np.float64)

    return reward
