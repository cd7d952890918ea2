"""From simulated step times to advantages: how much better a sample is than others of its problem."""

import numpy as np
import torch
from torch import Tensor

from envs.simulation.simulator import Outcomes
from graphs.op_graph import Bools, Floats
from training.ppo_rewards import PpoReward

NOT_FITTING = -10.0  # GDP, section 4.1: reward of an invalid placement
OVERFULL = -0.1  # on top, times how full the fullest device was, of a plan that was made to fit (ours)
DECAY = 0.9  # of a moving average
LARGEST_LOG_RATIO = 20.0  # beyond it a ratio is no guide, and beyond 88 no number in single precision


def rewards(outcomes: Outcomes, memory_bytes: Floats, scale_seconds: float, of_ratios: PpoReward) -> Floats:
    """(plans,) what `of_ratios` pays for seconds in units of a scale of the problem; -10 and below for misfits.

    Plans that fit with peaks above the memory were made to fit: the seconds are after that, and the peaks before.

    The scale (the problem's lower bound) makes graphs of 20 ms and of 2 s count alike, and keeps the penalty below
    the reward of any sensible plan. The penalty grows with how full the fullest of the devices, of `memory_bytes`
    (devices,), would be: at a flat -10 a policy whose samples all overflow would have nothing to learn from (ours).
    """
    fullest = (outcomes.peak_bytes / np.maximum(memory_bytes, 1.0)).max(axis=1)
    ratio = outcomes.step_seconds / scale_seconds
    made_to_fit = outcomes.fits & (fullest > 1.0)
    paid = of_ratios(ratio) + np.where(made_to_fit, OVERFULL * fullest, 0.0)
    return np.where(outcomes.fits, paid, NOT_FITTING * np.maximum(fullest, 1.0))


def standardised(values: Floats) -> Floats:
    """(samples,) zero mean and unit deviation among the samples of one problem; zeros if they are all equal."""
    spread = values.std()
    return (values - values.mean()) / spread if spread > 1e-9 else np.zeros_like(values)


def gains_over(plan_seconds: float, outcomes: Outcomes) -> Floats:
    """(samples,) standardised advantages of repairs of a plan: the logarithm by which each is faster, 0 if it is not.

    A search keeps what is better and drops the rest, however bad (Hottung et al. 2025 pay likewise).
    """
    faster = np.log(max(plan_seconds, 1e-30) / np.maximum(outcomes.step_seconds, 1e-30))
    return standardised(np.where(outcomes.fits, np.maximum(faster, 0.0), 0.0))


class MovingAverage:
    """The baseline of REINFORCE in ColocRL and HDP: how good the samples of one problem were of late.

    It decays by 0.9, as in the code of HDP's authors (TensorFlow's grappler). That code starts where nothing fits;
    then all first samples are far above, and the policy is soon sure of whatever it drew. Ours starts at their mean.
    """

    def __init__(self) -> None:
        self.value = np.nan  # of nothing yet

    def compare(self, values: Floats, counted: Bools) -> Floats:
        """(samples,) by how much each is above the average until now, which then moves on; 0 if it does not count."""
        if not counted.any():
            return np.zeros_like(values)
        mean = float(values[counted].mean())
        before = mean if np.isnan(self.value) else self.value
        self.value = DECAY * before + (1 - DECAY) * mean
        return np.where(counted, values - before, 0.0)


def surrogate(log_ratio: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """PPO's clipped objective of each decision; where the ratio is still 1 its gradient is REINFORCE's.

    What was tried at next to no probability may have become likely since: such a ratio is held at e^20.
    """
    ratio = log_ratio.clamp_max(LARGEST_LOG_RATIO).exp()
    return torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage)


def change(log_ratio: Tensor, mask: Tensor, clip: float) -> tuple[float, float]:
    """Approximate KL divergence per decision from the policy that drew it, in nats, and the share of clipped ratios.

    The divergence is the mean of (ratio - 1) - log(ratio) (Schulman, "Approximating KL Divergence", 2020), as in
    Stable-Baselines3. Only decisions of the bool `mask` count, which has the shape of `log_ratio`.
    """
    counted = log_ratio.detach()[mask].clamp_max(LARGEST_LOG_RATIO)
    difference = counted.exp() - 1
    return float((difference - counted).mean()), float((difference.abs() > clip).float().mean())
