"""GDP's network: GraphSAGE over the op graph, then a Transformer without positions over the ops."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from placers.policies.batch import Batch
from placers.policies.features import DEVICE_FEATURES, PAIR_FEATURES, UNIT_FEATURES

# Equal devices are interchangeable, so a policy that starts uniform sits on a saddle where samples teach little. Ours
# starts from a soft split of the modules, in order, over the devices; how strongly it keeps to it is learned.
SPLIT_IN_ORDER = 2.0  # nats per device that a unit is away from its place in order


def build(
    *, width: int = 64, sage_layers: int = 3, transformer_layers: int = 2, heads: int = 4, superposition: bool = True
) -> GraphSageTransformer:
    """The network at the given widths and depths, which GDP's paper does not give: ours are a small laptop's."""
    return GraphSageTransformer(width, sage_layers, transformer_layers, heads, superposition)


class GraphSageTransformer(nn.Module):
    """Batch -> logits for any number of units and devices (Zhou et al. 2019, "GDP", section 3)."""

    def __init__(self, width: int, sage_layers: int, transformer_layers: int, heads: int, superposition: bool) -> None:
        super().__init__()
        self.encode_unit = nn.Linear(len(UNIT_FEATURES), width)
        self.encode_device = nn.Sequential(nn.Linear(len(DEVICE_FEATURES), width), nn.ReLU(), nn.Linear(width, width))
        self.sage = nn.ModuleList(MaxSage(width) for _ in range(sage_layers))
        self.placement = nn.ModuleList(PlacementLayer(width, heads, superposition) for _ in range(transformer_layers))
        self.norm = nn.LayerNorm(width)
        self.score = DeviceScore(width)
        self.in_order = nn.Parameter(torch.tensor(SPLIT_IN_ORDER))

    def forward(self, batch: Batch) -> Tensor:
        """Logits (problems, units, devices); padded devices are at -inf."""
        features = self.encode_unit(batch.units)
        both_ways = torch.cat([batch.edges, batch.edges.flip(0)], dim=1)
        embedding = features.flatten(0, 1)
        for layer in self.sage:
            embedding = layer(embedding, both_ways)
        embedding = embedding.view_as(features)
        conditioning = embedding
        for layer in self.placement:
            embedding = layer(embedding, conditioning, batch.unit_mask)
        logits: Tensor = self.score(self.norm(embedding), self.encode_device(batch.devices), batch.pairs)
        apart = batch.pairs[..., PAIR_FEATURES.index("module_work_offset")].abs()
        logits = logits - self.in_order * apart * batch.device_mask.sum(1)[:, None, None]
        return logits.masked_fill(~batch.device_mask[:, None, :], -torch.inf)


class MaxSage(nn.Module):
    """h_N(v) = max over u in N(v) of sigmoid(W h_u + b);  h_v' = f(concat(h_v, h_N(v)))  (GDP, equations 2, 3).

    PyG's SAGEConv on a pair (neighbours, self) is the linear map of the concatenation; a residual keeps depth easy
    to train (our choice). N(v) are producers and consumers.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)
        self.join = SAGEConv((width, width), width, aggr="max")
        self.norm = nn.LayerNorm(width)

    def forward(self, embedding: Tensor, edges: Tensor) -> Tensor:
        """Embedding (nodes, width), edges (2, edges) -> (nodes, width)."""
        joined: Tensor = self.join((torch.sigmoid(self.gate(embedding)), embedding), edges)
        normed: Tensor = self.norm(embedding + torch.relu(joined))
        return normed


class PlacementLayer(nn.Module):
    """One Transformer layer; superposition: x' = g(c(x0) * x), c a gate from the graph embedding (GDP, section 3.3)."""

    def __init__(self, width: int, heads: int, superposition: bool) -> None:
        super().__init__()
        self.condition = nn.Linear(width, width) if superposition else None
        self.attention = nn.TransformerEncoderLayer(
            width, heads, dim_feedforward=2 * width, dropout=0.0, batch_first=True, norm_first=True
        )

    def forward(self, embedding: Tensor, conditioning: Tensor, mask: Tensor) -> Tensor:
        """Embedding and conditioning (problems, units, width), mask (problems, units) -> (problems, units, width)."""
        if self.condition is not None:
            embedding = 2 * torch.sigmoid(self.condition(conditioning)) * embedding
        out: Tensor = self.attention(embedding, src_key_padding_mask=~mask)
        return out


class DeviceScore(nn.Module):
    """A small network scores each (unit, device) pair, so that devices are features and never output indices."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.unit = nn.Linear(width, width)
        self.device = nn.Linear(width, width)
        self.pair = nn.Linear(len(PAIR_FEATURES), width)
        self.out = nn.Linear(width, 1)
        nn.init.normal_(self.out.weight, std=0.05)  # start close to uniform

    def forward(self, units: Tensor, devices: Tensor, pairs: Tensor) -> Tensor:
        """Units (b, u, width), devices (b, d, width), pairs (b, u, d, features) -> logits (b, u, d)."""
        hidden = self.unit(units)[:, :, None] + self.device(devices)[:, None] + self.pair(pairs)
        scores: Tensor = self.out(nn.functional.gelu(hidden)).squeeze(-1)  # a ReLU may die in the first updates
        return scores
