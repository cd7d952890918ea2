import math

import numpy as np
import pytest

from evaluation.records.statistics import bootstrap_interval, estimate, geometric_mean
from graphs.op_graph import Floats


def test_twice_and_half_cancel_in_a_geometric_mean() -> None:
    assert geometric_mean(np.array([2.0, 0.5])) == pytest.approx(1.0)
    assert geometric_mean(np.array([[1.0, 100.0], [8.0, 2.0]])).tolist() == pytest.approx([10.0, 4.0])


def test_an_interval_is_the_same_for_the_same_seed_only() -> None:
    values = np.linspace(1.0, 4.0, 20)
    assert bootstrap_interval([values], geometric_mean) == bootstrap_interval([values], geometric_mean)
    assert bootstrap_interval([values], geometric_mean) != bootstrap_interval([values], geometric_mean, seed=1)


def test_strata_are_kept_apart() -> None:
    def mean(values: Floats) -> Floats:
        return np.asarray(values.mean(axis=-1))

    far_apart = [np.array([1.0, 1.0, 1.0]), np.array([9.0, 9.0, 9.0])]
    assert bootstrap_interval(far_apart, mean) == (5.0, 5.0)
    together = bootstrap_interval([np.concatenate(far_apart)], mean)
    assert together[0] < 5.0 < together[1]


def test_an_interval_of_95_percent_holds_the_truth_about_that_often() -> None:
    generator = np.random.default_rng(0)
    samples = np.exp(generator.normal(0.0, 0.5, size=(300, 40)))  # geometric mean of the distribution: 1
    intervals = [bootstrap_interval([sample], geometric_mean, resamples=400) for sample in samples]
    held = np.mean([low <= 1.0 <= high for low, high in intervals])
    assert 0.90 <= held <= 0.98


def test_an_estimate_of_nothing_is_nan_and_of_fewer_than_five_problems_has_no_interval() -> None:
    assert math.isnan(estimate([]).value)
    assert estimate([np.zeros(0)]).count == 0
    four, five = (estimate([np.full(count, 2.0)]) for count in (4, 5))
    assert (four.value, four.count, four.has_interval) == (2.0, 4, False)
    assert math.isnan(four.low)
    assert math.isnan(four.high)
    assert (five.value, five.low, five.high, five.count) == pytest.approx((2.0, 2.0, 2.0, 5))
    assert five.has_interval
