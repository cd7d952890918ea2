"""The encoder of the sequential decoder: what every unit knows of the graph around it, computed once per problem."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from placers.policies.batch import Batch
from placers.policies.features import UNIT_FEATURES


class Encoder(nn.Module):
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
            embedding = layer(embedding, src_key_padding_mask=~batch.unit_mask)
            embedding = embedding * batch.unit_mask[..., None]
        normed: Tensor = self.norm(embedding)
        return normed


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
