"""Shape: who feeds whom in a random graph, before anything costs anything."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from graphs.op_graph import Ints

NO_WEIGHT = -1


@dataclass(frozen=True, eq=False)
class Shape:
    """Nodes in a topological order, the edges between them, what each does, and which weight it reads."""

    edges: Ints  # (edges, 2) producer, consumer: always from a lower to a higher number
    roles: Ints  # (nodes,) nodes of a role do the same: they may cost alike
    weights: Ints  # (nodes,) the number of the weight that each reads, or NO_WEIGHT; several may read one

    def __len__(self) -> int:
        return len(self.roles)


@dataclass(eq=False)
class ShapeDraft:
    """A shape while it is made, node after node, each after those that it reads."""

    _edges: list[tuple[int, int]] = field(default_factory=list)
    _roles: list[int] = field(default_factory=list)
    _weights: list[int] = field(default_factory=list)
    _numbers: dict[object, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._roles)

    def add(self, reads: Iterable[int] = (), *, role: int = 0, weight: object = None) -> int:
        """A further node and its number; nodes that are given equal weights, other than None, share one."""
        node = len(self)
        self._edges.extend((source, node) for source in dict.fromkeys(reads))
        self._roles.append(role)
        numbers = self._numbers
        self._weights.append(NO_WEIGHT if weight is None else numbers.setdefault(weight, len(numbers)))
        return node

    def shape(self, most: int) -> Shape:
        """The first `most` nodes, or all: what a node reads comes before it, so that nothing is missing."""
        kept = self._roles[:most]
        edges = [edge for edge in self._edges if edge[1] < len(kept)]
        return Shape(
            np.array(edges, np.int64).reshape(-1, 2), np.array(kept, np.int64), np.array(self._weights[:most], np.int64)
        )
