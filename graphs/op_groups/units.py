"""Units: a graph at the level of decisions, where ops that are placed together are one.

ops      a -> b -> c -> d     b and d are tied
units    0 -> 1 <-> 2         {a}, {b, d}, {c}: numbered by their first op; there may be cycles
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphs.algorithms.order import compressed_rows
from graphs.algorithms.pairs import distinct_pairs
from graphs.op_graph import Floats, Ints, OpGraph, Phase


@dataclass(frozen=True, eq=False)
class Units:
    """The units of a graph, what passes between them and what they hold; each property is derived once."""

    graph: OpGraph

    def __len__(self) -> int:
        return self.graph.num_units

    @cached_property
    def first_op(self) -> Ints:
        """(units,) the first op of each unit."""
        return np.unique(self.graph.units, return_index=True)[1]

    @cached_property
    def first_position(self) -> Ints:
        """(units,) where the first op of each unit that runs is in the topological order."""
        return np.unique(self.graph.units[self.graph.topological_order], return_index=True)[1]

    @cached_property
    def order(self) -> Ints:
        """(units,) units by the topological position of their first op."""
        return np.argsort(self.first_position, kind="stable")

    # ---- edges: producer, consumer ---------------------------------------------------------------------------

    @cached_property
    def edges(self) -> Ints:
        """(edges, 2) producer unit, consumer unit; each pair of different units once."""
        return self._edges_and_bytes[0]

    @cached_property
    def edge_bytes(self) -> Floats:
        """(edges,) bytes that the edges between the ops of each pair carry."""
        return self._edges_and_bytes[1]

    @cached_property
    def _edges_and_bytes(self) -> tuple[Ints, Floats]:
        between = self.graph.units[self.graph.edges]
        leaves = between[:, 0] != between[:, 1]
        edges, pair = distinct_pairs(between[leaves])
        edge_bytes = np.zeros(len(edges))
        np.add.at(edge_bytes, pair, self.graph.carried_bytes[leaves])
        return edges, edge_bytes

    @cached_property
    def forward_edges(self) -> Ints:
        """(edges, 2) producer unit, consumer unit of the forward pass; each pair of different units once."""
        graph = self.graph
        between = graph.units[graph.edges[(graph.phase[graph.edges] == Phase.FORWARD).all(axis=1)]]
        return distinct_pairs(between[between[:, 0] != between[:, 1]])[0]

    @cached_property
    def sent_bytes(self) -> Floats:
        """(units,) bytes of the outputs and messages that each unit sends to others, each counted once."""
        graph, sent = self.graph, np.zeros(len(self))
        sender, receiver = graph.units[graph.edges].T
        carrying = np.flatnonzero((sender != receiver) & ~graph.control)
        outputs, first = np.unique(graph.edge_output[carrying], return_index=True)
        np.add.at(sent, sender[carrying[first]], graph.moved_bytes[outputs])
        return sent

    # ---- links: what passes between two units, whichever feeds the other ---------------------------------------

    @cached_property
    def links(self) -> Ints:
        """(links, 2) lower unit, higher unit; each pair that exchanges anything once."""
        return self._links_and_bytes[0]

    @cached_property
    def link_bytes(self) -> Floats:
        """(links,) bytes that cross, in all phases, if the two units are on different devices."""
        return self._links_and_bytes[1]

    @cached_property
    def _links_and_bytes(self) -> tuple[Ints, Floats]:
        """An output goes to a unit once, however many of the unit's ops read it."""
        graph, units = self.graph, len(self)
        sender, receiver = graph.units[graph.edges].T
        crossing = np.flatnonzero(~graph.control & (sender != receiver))
        _, first = np.unique(graph.edge_output[crossing] * units + receiver[crossing], return_index=True)
        sent = crossing[first]
        source, reader = sender[sent], receiver[sent]
        pair, link = np.unique(np.minimum(source, reader) * units + np.maximum(source, reader), return_inverse=True)
        crossing_bytes = np.bincount(link, weights=graph.carried_bytes[sent], minlength=len(pair))
        return np.stack(np.divmod(pair, units), axis=1), crossing_bytes.astype(np.float64)

    @cached_property
    def neighbours(self) -> tuple[Ints, Ints, Ints]:
        """Compressed rows (offsets (units + 1,), neighbouring units (2 links,), the links to them (2 links,))."""
        ends = np.concatenate([self.links, self.links[:, ::-1]])
        offsets, by_unit = compressed_rows(ends[:, 0], ends[:, 1], len(self))
        return offsets, ends[by_unit, 1], by_unit % max(len(self.links), 1)

    # ---- amounts -----------------------------------------------------------------------------------------------

    def summed(self, values: Floats) -> Floats:
        """(units, ...) sums of values of ops, (ops, ...), such as seconds on each device."""
        total = np.zeros((len(self), *values.shape[1:]))
        np.add.at(total, self.graph.units, values)
        return total

    @cached_property
    def weight_uses(self) -> Ints:
        """(uses, 2) unit, weight that its ops read; each pair once."""
        ops, weights = self.graph.weight_uses.T
        return distinct_pairs(np.column_stack([self.graph.units[ops], weights]))[0]

    def weight_bytes(self, of_weights: Floats) -> Floats:
        """(units,) bytes of the weights that each unit reads, given those of each weight, (weights,)."""
        total = np.zeros(len(self))
        np.add.at(total, self.weight_uses[:, 0], of_weights[self.weight_uses[:, 1]])
        return total
