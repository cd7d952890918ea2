"""GDP's network: GraphSAGE over the op graph, then a Transformer without positions over the ops, segment by segment."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.extras import missing
from placers.learned.batch import Batch
from placers.learned.features import DEVICE_FEATURES, PAIR_FEATURES, UNIT_FEATURES
from placers.learned.gdp.segments import Segments, topological_order

try:
    from torch_geometric.nn import SAGEConv
except ModuleNotFoundError as error:
    raise missing("torch_geometric", "GDP's network") from error

# Equal devices are interchangeable, so a policy that starts uniform sits on a saddle where samples teach little. Ours
# starts from a soft split of the modules, in order, over the devices; how strongly it keeps to it is learned.
SPLIT_IN_ORDER = 2.0  # nats per device that a unit is away from its place in order

AGGREGATORS = ("max", "mean")


def build(
    *,
    width: int = 64,
    sage_layers: int = 3,
    transformer_layers: int = 2,
    heads: int = 4,
    superposition: bool = True,
    shared_condition: bool = False,
    segment: int = 0,
    memory_segments: int = 1,
    aggregator: str = "max",
    in_order: bool = True,
) -> GraphSageTransformer:
    """The network with the given knobs; Knobs describes them."""
    return GraphSageTransformer(Knobs(**locals()))


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """Sizes, which GDP's paper does not give (ours are a small laptop's), and which of its ingredients are there.

    Raises InputError for heads that do not divide the width, or an unknown aggregator.
    """

    width: int
    sage_layers: int  # rounds of neighbour aggregation; 0: units know of each other by attention alone
    transformer_layers: int  # placement layers; 0: no attention
    heads: int
    superposition: bool  # whether each placement layer is conditioned on the graph embedding
    shared_condition: (
        bool  # one layer c conditions all placement layers (the paper's c has no layer index); else one each
    )
    segment: int  # units per segment: the cost is linear in the units; 0: full attention, quadratic (our default)
    memory_segments: int  # earlier segments that a layer sees; 0: no recurrence; without effect if segment is 0
    aggregator: str  # over neighbours: "max", as in the paper, or "mean"
    in_order: bool  # whether to start from a soft split in order, which is ours and not the paper's

    def __post_init__(self) -> None:
        if self.width < 1 or self.heads < 1 or self.width % self.heads:
            raise InputError(
                f"graphsage_transformer: width={self.width} cannot be divided among heads={self.heads}; "
                "the width must be a multiple of the heads"
            )
        if self.aggregator not in AGGREGATORS:
            raise InputError(f"graphsage_transformer: {by_name.unknown('aggregator', self.aggregator, AGGREGATORS)}")


class GraphSageTransformer(nn.Module):
    """Batch -> logits for any number of units and devices (Zhou et al. 2019, "GDP", section 3).

    The graph embedding is of the whole graph, whatever the segments: only the placement layers see a segment at a time.
    """

    def __init__(self, knobs: Knobs) -> None:
        super().__init__()
        width = knobs.width
        self.knobs = knobs
        self.encode_unit = nn.Linear(len(UNIT_FEATURES), width)
        self.encode_device = nn.Sequential(nn.Linear(len(DEVICE_FEATURES), width), nn.ReLU(), nn.Linear(width, width))
        self.sage = nn.ModuleList(GdpSage(width, knobs.aggregator) for _ in range(knobs.sage_layers))
        shared = knobs.superposition and knobs.shared_condition
        own = knobs.superposition and not shared
        self.condition = nn.Linear(width, width) if shared else None
        self.placement = nn.ModuleList(PlacementLayer(width, knobs.heads, own) for _ in range(knobs.transformer_layers))
        self.norm = nn.LayerNorm(width)
        self.score = DeviceScore(width)
        self.in_order = nn.Parameter(torch.tensor(SPLIT_IN_ORDER)) if knobs.in_order else None

    def forward(self, batch: Batch) -> Tensor:
        """Logits (problems, units, devices); padded devices are at -inf."""
        embedding = self.placed(self.embedded(batch), batch)
        logits: Tensor = self.score(self.norm(embedding), self.encode_device(batch.devices), batch.pairs)
        if self.in_order is not None:
            apart = batch.pairs[..., PAIR_FEATURES.index("module_work_offset")].abs()
            logits = logits - self.in_order * apart * batch.device_mask.sum(1)[:, None, None]
        return logits.masked_fill(~batch.device_mask[:, None, :], -torch.inf)

    def embedded(self, batch: Batch) -> Tensor:
        """The graph embedding x0 (problems, units, width): each unit with what its neighbours say."""
        features: Tensor = self.encode_unit(batch.units)
        both_ways = torch.cat([batch.edges, batch.edges.flip(0)], dim=1)
        embedding = features.flatten(0, 1)
        for layer in self.sage:
            embedding = layer(embedding, both_ways)
        return embedding.view_as(features)

    def placed(self, x0: Tensor, batch: Batch) -> Tensor:
        """The placement layers over a graph embedding, (problems, units, width) -> the same."""
        segments = Segments.of(x0.shape[1], self.knobs.segment, self.knobs.memory_segments)
        order = topological_order(batch.edges, batch.unit_mask) if segments.count > 1 else None
        if order is not None:  # padded units stay last, so that the mask remains as it is
            x0 = x0.gather(1, order[..., None].expand_as(x0))
        x0 = segments.cut(x0)
        visible = segments.visible(batch.unit_mask)
        x = x0
        for layer in self.placement:
            if self.condition is not None:
                x = conditioned(x, self.condition(x0))
            x = layer(x, x0, segments, visible)
        x = segments.join(x)
        return x if order is None else x.gather(1, order.argsort(dim=1)[..., None].expand_as(x))


def conditioned(x: Tensor, condition: Tensor) -> Tensor:
    """c(x0) * x, elementwise (GDP, section 3.3). That c is a linear layer and a sigmoid, close to 1, is our choice."""
    return 2 * torch.sigmoid(condition) * x


class GdpSage(nn.Module):
    """h_N(v) = max over u in N(v) of sigmoid(W h_u + b);  h_v' = f(concat(h_v, h_N(v)))  (GDP, equations 2, 3).

    PyG's SAGEConv on a pair (neighbours, self) is the linear map of the concatenation; a residual keeps depth easy
    to train (our choice). N(v) are producers and consumers. The mean instead of the maximum is for comparison.
    """

    def __init__(self, width: int, aggregator: str) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)
        self.join = SAGEConv((width, width), width, aggr=aggregator)
        self.norm = nn.LayerNorm(width)

    def forward(self, embedding: Tensor, edges: Tensor) -> Tensor:
        """Embedding (nodes, width), edges (2, edges) -> (nodes, width)."""
        joined: Tensor = self.join((torch.sigmoid(self.gate(embedding)), embedding), edges)
        normed: Tensor = self.norm(embedding + torch.relu(joined))
        return normed


class PlacementLayer(nn.Module):
    """One Transformer layer; superposition: x' = g(c(x0) * x), c a gate from the graph embedding (GDP, section 3.3).

    The keys are the segment's own units and, as a cache without gradient, those of the segments before it.
    """

    def __init__(self, width: int, heads: int, superposition: bool) -> None:
        super().__init__()
        self.condition = nn.Linear(width, width) if superposition else None
        self.attention = nn.TransformerEncoderLayer(
            width, heads, dim_feedforward=2 * width, dropout=0.0, batch_first=True, norm_first=True
        )

    def forward(self, x: Tensor, x0: Tensor, segments: Segments, visible: Tensor) -> Tensor:
        """Rows of segments x and x0 (rows, length, width), visible keys (rows, keys) -> (rows, length, width).

        The parts of `attention` one by one, since as a whole it takes no keys but its own units.
        """
        if self.condition is not None:
            x = conditioned(x, self.condition(x0))
        layer = self.attention
        keys = query = layer.norm1(x)
        if segments.memory:  # the cached states pass through the layer's weights again, which learn from them
            keys = torch.cat([layer.norm1(segments.before(x.detach())), query], dim=1)
        attended, _ = layer.self_attn(query, keys, keys, key_padding_mask=~visible, need_weights=False)
        x = x + attended
        out: Tensor = x + layer.linear2(layer.activation(layer.linear1(layer.norm2(x))))
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
