"""A mixture of experts as GShard and Switch Transformers have it: experts whose weights are one tensor, of some room.

Each token goes to the expert with the largest gate, if there is room among the tokens of its sample (Fedus et al. 2022,
appendix F: `dispatch` and `combine` are products).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EXPERTS, WIDTH, INNER, SEQUENCE, ROOM = 4, 8, 16, 6, 3


class Mixture(nn.Module):
    """A feed-forward net for each expert, of which a token passes one."""

    def __init__(self, experts: int = EXPERTS, room: int = ROOM) -> None:
        super().__init__()
        self.experts, self.room = experts, room
        self.gate = nn.Linear(WIDTH, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, WIDTH, INNER))
        self.bias = nn.Parameter(torch.randn(experts, 1, INNER))
        self.down = nn.Parameter(torch.randn(experts, INNER, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """(samples, positions, width) from the same; 0 for what finds no room."""
        gates = self.gate(x).softmax(-1)
        chosen = (gates.argmax(-1, keepdim=True) == torch.arange(self.experts)).to(x.dtype)
        place = chosen.cumsum(1) * chosen - 1  # (samples, positions, experts), of those that chose an expert
        combine = (gates * chosen).unsqueeze(-1) * (place.unsqueeze(-1) == torch.arange(self.room)).to(x.dtype)
        dispatch = (combine > 0).to(x.dtype)
        given = torch.einsum("bsec,bsm->ebcm", dispatch, x).flatten(1, 2)
        made = torch.bmm(F.gelu(torch.bmm(given, self.up) + self.bias), self.down)
        made = made.view(self.experts, len(x), self.room, -1)
        return torch.einsum("bsec,ebcm->bsm", combine, made)


class Model(nn.Module):
    """A mixture between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.mixture, self.last = nn.Linear(WIDTH, WIDTH), Mixture(), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, wanted: Tensor) -> Tensor:
        """The mean squared error."""
        x = torch.tanh(self.first(x))
        return F.mse_loss(self.last(x + self.mixture(x)), wanted)
