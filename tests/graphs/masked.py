"""A module that asks whether a mask leaves anything out."""

import torch
from torch import Tensor, nn

WIDTH = 4


class Masked(nn.Module):
    """As libraries do it: attention is causal by itself unless a mask leaves something out."""

    positions: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("positions", torch.arange(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        if (self.positions.diff() != 1).any():
            return y.sin()
        return y if mask.all() else y * mask[:, None]
