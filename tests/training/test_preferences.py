"""Preference pairs: the closed form of their loss, and where there are none."""

import math

import pytest
import torch
from torch import Tensor

from training.learning.labels.preferences import HIGHEST_RATIO, preference


def of(likelihood: list[list[float]], seconds: list[list[float]]) -> float:
    return float(preference(torch.tensor(likelihood), torch.tensor(seconds, dtype=torch.float64)))


def log_sigmoid(x: float) -> float:
    return -math.log(1 + math.exp(-x))


def test_a_pair_counts_by_the_ratio_of_its_seconds() -> None:
    assert of([[-0.5, -0.2]], [[2.0, 3.0]]) == pytest.approx(log_sigmoid(1.5 * (-0.5 + 0.2)))
    assert of([[-0.5, -0.2]], [[3.0, 2.0]]) == pytest.approx(log_sigmoid(1.5 * (-0.2 + 0.5)))


def test_the_best_is_paired_with_every_other_and_problems_count_alike() -> None:
    first = (log_sigmoid(2.0 * 0.1) + log_sigmoid(3.0 * -0.3)) / 2
    second = log_sigmoid(1.5 * 0.2)  # its third sample is as good as its best
    found = of([[-0.4, -0.5, -0.1], [-0.3, -0.5, -0.9]], [[1.0, 2.0, 3.0], [2.0, 3.0, 2.0]])
    assert found == pytest.approx((first + second) / 2)


def test_what_does_not_fit_is_never_preferred() -> None:
    expected = log_sigmoid(HIGHEST_RATIO * (-0.7 + 0.1))
    assert of([[-0.1, -0.7]], [[math.inf, 5.0]]) == pytest.approx(expected)


def test_without_a_pair_there_is_nothing_to_learn() -> None:
    likelihood = torch.tensor([[-0.1, -0.7], [-0.2, -0.3]], requires_grad=True)
    loss = preference(likelihood, torch.tensor([[math.inf, math.inf], [2.0, 2.0 * (1 + 1e-12)]], dtype=torch.float64))
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss.detach()) == 0.0
    assert likelihood.grad is not None
    assert not likelihood.grad.any()


def test_its_gradient_raises_the_best_and_lowers_the_others() -> None:
    likelihood: Tensor = torch.tensor([[-0.5, -0.4, -0.3]], requires_grad=True)
    preference(likelihood, torch.tensor([[2.0, 1.0, 4.0]], dtype=torch.float64)).backward()  # type: ignore[no-untyped-call]
    assert likelihood.grad is not None
    worse, best, worst = likelihood.grad[0].tolist()
    assert best > 0 > worse > worst
    assert best == pytest.approx(-worse - worst)
