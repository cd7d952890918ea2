"""Blocks of rows and decisions without padding give what plain PyTorch gives, forwards and backwards."""

import numpy as np
import pytest
import torch
from torch import Tensor

from placers.learned.sequential.rating import RatingWeights, rated_choices, rated_rows
from placers.learned.sequential.state import IMPOSSIBLE


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()


def gradients(of: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Of a sum in which every number of `of` counts by another weight."""
    return torch.autograd.grad((of * torch.linspace(-1, 2, of.numel()).view_as(of)).sum(), inputs)


@pytest.mark.parametrize("rows", [0, 1, 300])
def test_rows_are_rated_as_in_one_expression(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placers.learned.sequential.rating.BLOCK", 128)
    states, features = numbers(7, 6), numbers(rows, 5).detach()
    weights = RatingWeights(numbers(6, 5), numbers(3, 6), numbers(3), numbers(1, 3)[0], numbers(1, 5)[0])
    of_row = torch.arange(rows) % 7
    hidden = torch.relu(states[of_row] + features @ weights.first.T)
    expected = torch.relu(hidden @ weights.second.T + weights.bias) @ weights.out + features @ weights.skip
    rated = rated_rows(states, features, of_row, weights)
    torch.testing.assert_close(rated, expected)
    for own, other in zip(gradients(rated, states, *weights), gradients(expected, states, *weights), strict=True):
        torch.testing.assert_close(own, other, atol=1e-4, rtol=1e-4)


def test_choices_are_rated_as_by_a_softmax_of_each_decision() -> None:
    starts, devices, chosen = np.array([0, 3, 5, 9]), np.array([0, 1, 3, 0, 2, 0, 1, 2, 3]), np.array([3, 1, 0])
    rated = numbers(9)
    log_probability, entropy = rated_choices(rated, starts, devices, chosen)
    tables = [part.log_softmax(0) for part in torch.split(rated, [3, 2, 4])]
    expected = torch.stack([tables[0][2], torch.tensor(IMPOSSIBLE), tables[2][0]])  # device 1 is none of the second's
    spread = torch.stack([-(table.exp() * table).sum() for table in tables])
    torch.testing.assert_close(log_probability, expected)
    torch.testing.assert_close(entropy, spread)
    own, other = torch.cat([log_probability[[0, 2]], entropy]), torch.cat([expected[[0, 2]], spread])
    torch.testing.assert_close(gradients(own, rated), gradients(other, rated))
