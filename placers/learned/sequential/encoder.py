"""The encoder of the sequential decoder: what every unit knows of the graph around it, computed once per problem."""

import torch
from torch import Tensor, nn

from placers.learned.batch import Batch
from placers.learned.features import UNIT_FEATURES

SEGMENT = 2048  # units that attend to each other, in the graph's order; all of them in problems no larger


class UnitEncoder(nn.Module):
    """GraphSAGE layers (Hamilton et al. 2017), then Transformer layers without positions, as in GDP's network.

    Units have a number of `further` features after `UNIT_FEATURES`.
    """

    def __init__(self, width: int, sage_layers: int, transformer_layers: int, heads: int, further: int = 0) -> None:
        super().__init__()
        self.unit = nn.Linear(len(UNIT_FEATURES) + further, width)
        self.sage = nn.ModuleList(TwoWaySage(width) for _ in range(sage_layers))
        self.attention = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(transformer_layers)
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, batch: Batch) -> Tensor:
        """The embedding of every unit, (problems, units, width), on the CPU wherever it is computed."""
        device = self.norm.weight.device
        edges, mask = batch.edges.to(device), batch.unit_mask.to(device)
        features: Tensor = self.unit(batch.units.to(device))
        embedding = features.flatten(0, 1)
        for layer in self.sage:
            embedding = layer(embedding, edges)
        embedding = embedding.view_as(features)
        for layer in self.attention:
            embedding = attend(layer, embedding, mask) * mask[..., None]
        normed: Tensor = self.norm(embedding)
        return normed.cpu()


def attend(layer: nn.Module, embedding: Tensor, mask: Tensor) -> Tensor:
    """A Transformer layer over (problems, units, width), of large problems within segments of SEGMENT units.

    Among all pairs of 50,000 units it would take tens of gigabytes. A segment that is all padding yields anything.
    """
    problems, units, width = embedding.shape
    if units <= SEGMENT:
        return _joined(layer, embedding, ~mask)
    padding = -units % SEGMENT
    parts = nn.functional.pad(embedding, (0, 0, 0, padding)).view(-1, SEGMENT, width)
    hidden = ~nn.functional.pad(mask, (0, padding)).view(-1, SEGMENT)
    hidden &= ~hidden.all(dim=1, keepdim=True)  # attention to nothing would be NaN
    within = torch.cat([_joined(layer, p[None], h[None]) for p, h in zip(parts, hidden, strict=True)])
    return within.view(problems, -1, width)[:, :units]


def _joined(layer: nn.Module, embedding: Tensor, hidden: Tensor) -> Tensor:
    """The layer over (problems, units, width), without attention to what is hidden, (problems, units).

    A mask that hides nothing is left out: the bits are the same, and PyTorch, to check a mask, imports SymPy: a second.
    """
    joined: Tensor = layer(embedding, src_key_padding_mask=hidden if hidden.any() else None)
    return joined


class TwoWaySage(nn.Module):
    """Joins a unit with the maximum over its producers and the maximum over its consumers.

    GDP's network takes one maximum over both. With two, a unit can tell what comes from what goes.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width)
        self.producers = MaxSage(width, own=True)
        self.consumers = MaxSage(width, own=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, embedding: Tensor, edges: Tensor) -> Tensor:
        """Embedding (nodes, width), edges (2, edges) producer, consumer -> (nodes, width)."""
        gated = torch.sigmoid(self.gate(embedding))
        joined = self.producers(gated, embedding, edges) + self.consumers(gated, embedding, edges.flip(0))
        normed: Tensor = self.norm(embedding + torch.relu(joined))
        return normed


class MaxSage(nn.Module):
    """A linear map of the maximum over a node's neighbours and, if `own`, of the node itself: GraphSAGE's pooling.

    PyTorch Geometric's SAGEConv with aggr="max": the same weights by the same names, and the same bits. Written out,
    because the released policy has this one layer of that library, and importing it takes longer than all other work
    of placing a model.
    """

    def __init__(self, width: int, *, own: bool) -> None:
        super().__init__()
        self.lin_l = nn.Linear(width, width)  # of the neighbours
        self.lin_r = nn.Linear(width, width, bias=False) if own else None  # of the node
        for layer in (self.lin_l, self.lin_r):  # drawn again, as SAGEConv does: a seed keeps the weights it always gave
            if layer is not None:
                layer.reset_parameters()

    def forward(self, neighbours: Tensor, nodes: Tensor, edges: Tensor) -> Tensor:
        """What neighbours say and nodes know, (nodes, width) both, edges (2, edges) neighbour, node -> (nodes, width).

        The maximum over no neighbours is 0.
        """
        said = neighbours.index_select(0, edges[0])
        index = edges[1][:, None].expand_as(said)
        most = torch.zeros_like(neighbours).scatter_reduce_(0, index, said, "amax", include_self=False)
        joined: Tensor = self.lin_l(most)
        return joined if self.lin_r is None else joined + self.lin_r(nodes)
