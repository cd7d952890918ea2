"""Means and confidence intervals over a few problems and seeds.

The percentile intervals from a stratified bootstrap are those of Agarwal et al., "Deep reinforcement learning at the
edge of the statistical precipice" (NeurIPS 2021).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphs.op_graph import Floats

Statistic = Callable[[Floats], Floats]  # (..., values) -> (...)

RESAMPLES = 2000  # as many as in the paper's figures
CONFIDENCE = 0.95
OUTSIDE = ((1 - CONFIDENCE) / 2, 1 - (1 - CONFIDENCE) / 2)  # quantiles at the ends of an interval
FEWEST_PROBLEMS = 5  # of which an interval is given: drawing fewer again says nothing of others
FEWEST_SEEDS = 3  # likewise, of which a spread is given


@dataclass(frozen=True)
class Estimate:
    """A statistic, NaN where there is nothing to average, and the interval that holds it with 95% confidence."""

    value: float
    low: float  # NaN where there are too few values for an interval
    high: float
    count: int  # values it was computed from

    @property
    def has_interval(self) -> bool:
        """Whether there are enough values for one."""
        return not math.isnan(self.low)


NOTHING = Estimate(math.nan, math.nan, math.nan, 0)


def geometric_mean(values: Floats) -> Floats:
    """(..., values) positive numbers -> (...): the mean for ratios, in which twice and half cancel."""
    with np.errstate(divide="ignore"):  # the mean of zero and others is zero
        mean: Floats = np.exp(np.log(values).mean(axis=-1))
    return mean


def bootstrap_interval(
    strata: Sequence[Floats], statistic: Statistic, *, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """Percentile interval of a statistic of all values, from drawing each stratum again with replacement.

    With the runs of each problem as a stratum the problems are fixed and the runs vary (section 4.2 of the paper);
    with one stratum of a value per problem, the problems are a sample of those that might have been.
    """
    generator = np.random.default_rng(seed)
    draws = [values[generator.integers(len(values), size=(resamples, len(values)))] for values in strata]
    low, high = np.quantile(statistic(np.concatenate(draws, axis=1)), OUTSIDE)
    return float(low), float(high)


def estimate(strata: Sequence[Floats]) -> Estimate:
    """The geometric mean of a value per problem, with its interval unless there are fewer than `FEWEST_PROBLEMS`."""
    values = np.concatenate([*strata, np.zeros(0)])
    if len(values) == 0:
        return NOTHING
    has_interval = len(values) >= FEWEST_PROBLEMS
    interval = bootstrap_interval(strata, geometric_mean) if has_interval else (math.nan, math.nan)
    return Estimate(float(geometric_mean(values)), *interval, len(values))
