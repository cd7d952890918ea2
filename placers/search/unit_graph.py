"""UnitGraph: the units of a problem, what they cost, and the bytes that pass between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.costs.costs import Costs
from graphs.op_graph import Floats, Ints, OpGraph
from graphs.problem import Problem


@dataclass(frozen=True, eq=False)
class UnitGraph:
    """An undirected graph whose vertices are decided one by one; a unit's links hold forward and backward traffic."""

    seconds: Floats  # (units, devices) all ops of the unit, with the launches that follow them
    order: Ints  # (units,) units by the topological position of their first op
    links: Ints  # (links, 2) lower unit, higher unit; each pair once
    link_bytes: Floats  # (links,) bytes that cross if the two units are on different devices

    @classmethod
    def of(cls, problem: Problem, costs: Costs) -> UnitGraph:
        """The unit graph of a problem under the given costs."""
        links, link_bytes = _links(problem.graph)
        return cls(unit_seconds(problem, costs), unit_order(problem.graph), links, link_bytes)

    def __len__(self) -> int:
        return len(self.seconds)

    @cached_property
    def neighbours(self) -> tuple[Ints, Ints, Ints]:
        """Compressed rows (offsets (units + 1,), neighbouring units (2 links,), the links to them (2 links,))."""
        ends = np.concatenate([self.links, self.links[:, ::-1]])
        by_unit = np.lexsort((ends[:, 1], ends[:, 0]))
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(np.bincount(ends[:, 0], minlength=len(self)), out=offsets[1:])
        return offsets, ends[by_unit, 1], by_unit % max(len(self.links), 1)


def op_seconds(problem: Problem, costs: Costs) -> Floats:
    """(ops, devices) seconds for which an op holds a device: its duration and, if it takes time, a launch."""
    launches = np.where(costs.op_seconds > 0, problem.cluster.launch_seconds, 0.0)
    held: Floats = costs.op_seconds + launches
    return held


def unit_seconds(problem: Problem, costs: Costs) -> Floats:
    """(units, devices) seconds for which the ops of a unit hold a device."""
    total = np.zeros((problem.graph.num_units, len(problem.cluster)))
    np.add.at(total, problem.graph.units, op_seconds(problem, costs))
    return total


def unit_order(graph: OpGraph) -> Ints:
    """(units,) units by the topological position of their first op."""
    _, first = np.unique(graph.units[graph.topological_order], return_index=True)
    order: Ints = np.argsort(first, kind="stable")
    return order


def _links(graph: OpGraph) -> tuple[Ints, Floats]:
    """An output goes to a unit once, however many of the unit's ops read it."""
    units = graph.num_units
    sender, receiver = graph.units[graph.edges].T
    crossing = np.flatnonzero(~graph.control & (sender != receiver))
    _, first = np.unique(graph.edge_output[crossing] * units + receiver[crossing], return_index=True)
    sent = crossing[first]
    source, reader = sender[sent], receiver[sent]
    pair, link = np.unique(np.minimum(source, reader) * units + np.maximum(source, reader), return_inverse=True)
    links = np.stack(np.divmod(pair, units), axis=1)
    crossing_bytes = np.bincount(link, weights=graph.carried_bytes[sent], minlength=len(pair))
    return links, crossing_bytes.astype(np.float64)
