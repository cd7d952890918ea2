"""From simulated step times to advantages: how much better a sample is than the others of its problem."""

from __future__ import annotations

import numpy as np

from envs.simulator import Outcomes
from graphs.op_graph import Floats

NOT_FITTING = -10.0  # GDP, section 4.1: reward of an invalid placement


def rewards(outcomes: Outcomes, scale_seconds: float) -> Floats:
    """(plans,) GDP's -sqrt(seconds), with seconds in units of a scale of the problem; -10 for a plan that does not fit.

    The scale (the problem's lower bound) makes graphs of 20 ms and of 2 s count alike, and keeps the penalty below
    the reward of any sensible plan.
    """
    return np.where(outcomes.fits, -np.sqrt(outcomes.step_seconds / scale_seconds), NOT_FITTING)


def standardised(values: Floats) -> Floats:
    """(samples,) zero mean and unit deviation among the samples of one problem; zeros if they are all equal."""
    spread = values.std()
    return (values - values.mean()) / spread if spread > 1e-9 else np.zeros_like(values)
