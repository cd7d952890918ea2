"""A model of minimal ops, by which the runner's cost per op is measured."""

from pathlib import Path

import torch
from torch import Tensor, nn

SPEC = f"{Path(__file__)}:model"
LAYERS = 8


class Scaled(nn.Module):
    """Multiplies one number by one weight after another."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(LAYERS))

    def forward(self, number: Tensor) -> Tensor:
        """The number, multiplied by all weights."""
        for weight in self.weights:
            number = number * weight
        return number


def model() -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model with its input."""
    return Scaled(), (torch.ones(1),)
