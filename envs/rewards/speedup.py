"""Ours: the logarithm of how many times faster a step made it; they add up. What does not fit in the end: -10."""

from math import log

from envs.rewards import Penalty, RewardFunction
from envs.rewards.square_root import NOT_FITTING
from envs.simulation.simulator import Outcome

LEAST_SECONDS = 1e-12  # a graph without costs takes no time


def build() -> RewardFunction:
    """The reward, which does not depend on how long the steps of a problem take."""
    return speedup


def speedup(before: Outcome, after: Outcome, last: bool, _penalty: Penalty) -> float:
    """What fits is a matter of each device's own memory here: the penalty is not read."""
    if last and not after.fits:
        return NOT_FITTING
    return log(max(before.step_seconds, LEAST_SECONDS) / max(after.step_seconds, LEAST_SECONDS))
