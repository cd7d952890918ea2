"""Placeto's network: messages up and down the graph, pools of the current unit's kin, a classifier.

Addanki et al. 2019, section 3.2, with the layers of the authors' code. Its sums are ours to replace by means
(`mean=True`), which hold their scale in graphs of many hundred units.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from placers.learned.placeto.states import ANCESTOR, DESCENDANT, PARALLEL, States

_KIN = {"ancestors": ANCESTOR, "descendants": DESCENDANT, "parallel": PARALLEL}


class PlacetoNetwork(nn.Module):
    """States -> one score per part and output: as many outputs as devices, or 1 where a part shows one device."""

    def __init__(self, columns: int, outputs: int, width: int = 0, rounds: int = 8, mean: bool = False) -> None:
        super().__init__()
        self.encode = PlacetoEncoder(columns, width, rounds, mean)
        self.classify = perceptron(self.encode.pooled_width, *self.encode.hidden_widths, outputs)

    def forward(self, states: States) -> Tensor:
        """(parts, outputs)."""
        scores: Tensor = self.classify(self.encode(states))
        return scores


class PlacetoEncoder(nn.Module):
    """States -> (parts, 8 width): pools of ancestors, descendants and parallel units, and the current unit itself.

    Messages have a `width`, that of a node's features (`columns`) if it is 0, as in the authors' code, whose sample
    settings have 8 `rounds` of them. `mean`: average over neighbours and kin instead of adding up.
    """

    def __init__(self, columns: int, width: int = 0, rounds: int = 8, mean: bool = False) -> None:
        super().__init__()
        width = width or columns
        self.rounds = rounds
        self.enter = perceptron(columns, columns, columns, width)
        self.down, self.up = Aggregator(width, mean), Aggregator(width, mean)
        self.pools = nn.ModuleDict({name: Aggregator(2 * width, mean) for name in _KIN})
        self.pooled_width = 8 * width
        self.hidden_widths = (16 * width, 8 * width)  # of the classifier behind it

    def forward(self, states: States) -> Tensor:
        """(parts, 8 width)."""
        embedding = self.embed(states.nodes, states.edges)
        parts = len(states.current)
        pools = []
        for name, pool in self.pools.items():
            members = (states.kin & _KIN[name]).nonzero()[:, 0]
            pools.append(pool(embedding, members, states.part[members], parts))
        return torch.cat([*pools, embedding[states.current]], dim=1)

    def embed(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """Nodes (nodes, columns), edges (2, edges) -> (nodes, 2 width): of messages from producers, from consumers."""
        entered: Tensor = self.enter(nodes)
        return torch.cat([self._pass(entered, edges, self.down), self._pass(entered, edges.flip(0), self.up)], dim=1)

    def _pass(self, entered: Tensor, edges: Tensor, aggregator: Aggregator) -> Tensor:
        """(nodes, width) after the rounds x_v <- e_v + g(sum over senders u of f(x_u)), e_v alone without senders."""
        hears = torch.zeros_like(entered[:, :1]).index_fill_(0, edges[1], 1.0)
        embedding = entered
        for _ in range(self.rounds):
            embedding = entered + hears * aggregator(embedding, edges[0], edges[1], len(entered))
        return embedding


class Aggregator(nn.Module):
    """g(sum of f(x)), f and g of two layers of the same width each followed by a ReLU."""

    def __init__(self, width: int, mean: bool) -> None:
        super().__init__()
        self.each = perceptron(width, width, width)
        self.all = perceptron(width, width, width)
        self.mean = mean

    def forward(self, values: Tensor, source: Tensor, target: Tensor, targets: int) -> Tensor:
        """Values (nodes, width), source and target (pairs,) -> (targets, width)."""
        messages = torch.relu(self.each(values))
        total = messages.new_zeros(targets, messages.shape[1]).index_add_(0, target, messages[source])
        if self.mean:
            count = messages.new_zeros(targets).index_add_(0, target, torch.ones_like(target, dtype=total.dtype))
            total = total / count.clamp_min(1.0)[:, None]
        return torch.relu(self.all(total))


def perceptron(*widths: int) -> nn.Sequential:
    """Linear layers with ReLUs between them; Glorot's uniform weights and no bias at first, as in the authors' code."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        linear = nn.Linear(before, after)
        nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])
