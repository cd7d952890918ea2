"""OpSequence: what recurrent policies see of a graph, its units one after another in topological order.

Op type, output sizes and neighbours are the features of Mirhoseini et al. (2017, section 3.2; 2018, section 3), who
read nothing of the devices: what these are worth is learned. Ours is what our graphs require: a unit has several
forward ops (the others are placed with them), so types are counted; the types are the KINDS of `features`; and graphs
hold the bytes of an output instead of its shape, whose logarithm takes the place of the shape's dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphs.op_graph import Floats, Ints, OpGraph, Phase
from graphs.op_groups.units import Units
from placers.learned.batch import padded
from placers.learned.features import KINDS, kind_index


@dataclass(frozen=True, eq=False)
class OpSequence:
    """The units of a graph by their position in a topological order; edges are those of the forward pass."""

    order: Ints  # (units,) the unit at each position
    types: Floats  # (units, len(KINDS)) how many forward ops of each type
    sizes: Floats  # (units,) log(1 + bytes) of the forward ops' outputs
    edges: Ints  # (edges, 2) positions of producer and consumer; each pair once, sorted
    connections: Floats  # (edges,) how many edges between ops it stands for

    @classmethod
    def of(cls, graph: OpGraph) -> OpSequence:
        """The units of a graph in order."""
        order = Units(graph).order
        position = np.argsort(order)
        forward = graph.phase == Phase.FORWARD
        place = position[graph.units]
        types = np.zeros((len(order), len(KINDS)))
        np.add.at(types, (place[forward], np.array([kind_index(kind) for kind in graph.kinds])[forward]), 1.0)
        sent_bytes = np.bincount(place[forward], weights=graph.sent_bytes[forward], minlength=len(order))
        between = place[graph.edges[forward[graph.edges].all(axis=1)]]
        apart = between[between[:, 0] != between[:, 1]]
        edges, connections = np.unique(apart, axis=0, return_counts=True)
        return cls(order, types, np.log1p(sent_bytes), edges.reshape(-1, 2), connections.astype(np.float64))


@dataclass(frozen=True, eq=False)
class Sequences:
    """Several op sequences as tensors, padded to the longest; padded positions hold the padded units, in order."""

    order: Tensor  # (problems, units) the unit at each position
    mask: Tensor  # (problems, units) bool, False where padded; the same for positions as for units
    types: Tensor  # (problems, units, len(KINDS))
    sizes: Tensor  # (problems, units)
    edges: Tensor  # (problems, edges, 2) positions
    connections: Tensor  # (problems, edges), 0 where padded

    @classmethod
    def of(cls, sequences: Sequence[OpSequence]) -> Sequences:
        """Sequences of any lengths."""
        types, mask = padded([torch.from_numpy(one.types).float() for one in sequences])
        order = torch.arange(mask.shape[1]).repeat(len(sequences), 1)
        for row, one in zip(order, sequences, strict=True):
            row[: len(one.order)] = torch.from_numpy(one.order)
        sizes, edges, connections = (
            padded([torch.from_numpy(getattr(one, name)) for one in sequences])[0]
            for name in ("sizes", "edges", "connections")
        )
        return cls(order, mask, types, sizes.float(), edges, connections.float())

    def by_unit(self, values: Tensor) -> Tensor:
        """(problems, samples, units) from the same by position."""
        return torch.zeros_like(values).scatter(-1, self._order_of(values), values)

    def by_position(self, values: Tensor) -> Tensor:
        """(problems, samples, units) by position from the same by unit."""
        return values.gather(-1, self._order_of(values))

    def _order_of(self, values: Tensor) -> Tensor:
        return self.order[:, None].expand_as(values)
