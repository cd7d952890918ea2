"""The encoder of the sequential decoder: what every unit knows of the graph around it, computed once per problem."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

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
        """The embedding of every unit, (problems, units, width), 0 where padded; on the CPU wherever it is computed.

        Units of all problems are in one row, without padding: of problems of unlike sizes half is that.
        """
        device, mask = self.norm.weight.device, batch.unit_mask
        place = mask.flatten().nonzero().squeeze(-1)  # (units of all problems,) in the padded (problems * units)
        edges = (mask.flatten().cumsum(0) - 1)[batch.edges].to(device)
        embedding: Tensor = self.unit(batch.units.flatten(0, 1)[place].to(device))
        for layer in self.sage:
            embedding = layer(embedding, edges)
        for layer in self.attention:
            assert isinstance(layer, nn.TransformerEncoderLayer)
            embedding = attend(layer, embedding, mask.sum(dim=1).tolist())
        normed = self.norm(embedding).cpu()
        padded: Tensor = normed.new_zeros(mask.numel(), normed.shape[1]).index_copy(0, place, normed)
        return padded.view(*mask.shape, -1)


def attend(layer: nn.TransformerEncoderLayer, embedding: Tensor, counts: list[int]) -> Tensor:
    """A Transformer layer that normalises first, over the units of several problems, (units of all, width).

    Each attends to those of its own problem, `counts` of them; of large problems to those of its segment of SEGMENT
    units: among all pairs of 50,000 units it would take tens of gigabytes.
    """
    joined, width = layer.self_attn, embedding.shape[1]
    projected = linear(layer.norm1(embedding), joined.in_proj_weight, joined.in_proj_bias)
    by_head = projected.view(-1, 3, joined.num_heads, width // joined.num_heads)
    within = [
        scaled_dot_product_attention(*part.permute(1, 2, 0, 3)[:, None]).squeeze(0).transpose(0, 1).reshape(-1, width)
        for of_problem in torch.split(by_head, counts)
        for part in torch.split(of_problem, SEGMENT)
    ]
    attended: Tensor = embedding + joined.out_proj(torch.cat(within))
    wide: Tensor = layer.linear2(torch.relu(layer.linear1(layer.norm2(attended))))
    return attended + wide


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
