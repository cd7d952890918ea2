"""The encoder of the sequential decoder: what every unit knows of the graph around it, computed once per problem."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from placers.learned.batch import Batch
from placers.learned.features import UNIT_FEATURES

SEGMENT = 2048  # units that attend to each other, in the graph's order; all of them in problems no larger


class UnitEncoder(nn.Module):
    """GraphSAGE layers (Hamilton et al. 2017), then Transformer layers without positions, as in GDP's network."""

    def __init__(self, width: int, sage_layers: int, transformer_layers: int, heads: int) -> None:
        super().__init__()
        self.unit = nn.Linear(len(UNIT_FEATURES), width)
        self.sage = nn.ModuleList(TwoWaySage(width) for _ in range(sage_layers))
        self.attention = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(transformer_layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, batch: Batch) -> Tensor:
        """The embedding of every unit, (problems, units, width)."""
        features: Tensor = self.unit(batch.units)
        embedding = features.flatten(0, 1)
        for layer in self.sage:
            embedding = layer(embedding, batch.edges)
        embedding = embedding.view_as(features)
        for layer in self.attention:
            embedding = attend(layer, embedding, batch.unit_mask) * batch.unit_mask[..., None]
        normed: Tensor = self.norm(embedding)
        return normed


def attend(layer: nn.Module, embedding: Tensor, mask: Tensor) -> Tensor:
    """A Transformer layer over (problems, units, width), of large problems within segments of SEGMENT units.

    Among all pairs of 50,000 units it would take tens of gigabytes. A segment that is all padding yields anything.
    """
    problems, units, width = embedding.shape
    if units <= SEGMENT:
        joined: Tensor = layer(embedding, src_key_padding_mask=~mask)
        return joined
    padding = -units % SEGMENT
    parts = nn.functional.pad(embedding, (0, 0, 0, padding)).view(-1, SEGMENT, width)
    hidden = ~nn.functional.pad(mask, (0, padding)).view(-1, SEGMENT)
    hidden &= ~hidden.all(dim=1, keepdim=True)  # attention to nothing would be NaN
    within = torch.cat([layer(p[None], src_key_padding_mask=h[None]) for p, h in zip(parts, hidden, strict=True)])
    return within.view(problems, -1, width)[:, :units]


class TwoWaySage(nn.Module):
    """Joins a unit with the maximum over its producers and the maximum over its consumers.

    GDP's network takes one maximum over both. With two, a unit can tell what comes from what goes.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)
        self.producers = SAGEConv((width, width), width, aggr="max")
        self.consumers = SAGEConv((width, width), width, aggr="max", root_weight=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, embedding: Tensor, edges: Tensor) -> Tensor:
        """Embedding (nodes, width), edges (2, edges) producer, consumer -> (nodes, width)."""
        pair = torch.sigmoid(self.gate(embedding)), embedding
        joined = self.producers(pair, edges) + self.consumers(pair, edges.flip(0))
        normed: Tensor = self.norm(embedding + torch.relu(joined))
        return normed
