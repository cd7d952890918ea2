"""The contracted graph: what a split into contiguous parts cannot take apart, in the order of the forward pass.

As "Efficient Algorithms for Device Placement of DNN Graph Operators" prepares its workloads (Tarnawski et al., NeurIPS
2020, section 4 and appendix B, and the program released with it): ops of one unit are one node, with their backward
ops; parts must be contiguous by the forward edges alone. A unit that has backward ops only counts by its edges to
other such ops, turned around. Nodes on a cycle become one. A node that takes no time and touches one other node, in
the forward pass, joins it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.costs.costs import Costs
from envs.simulation.device_loads import Moved
from graphs.algorithms.components import strong_components
from graphs.algorithms.pairs import distinct_pairs
from graphs.op_graph import Floats, Ints, Phase
from graphs.problem import Problem


@dataclass(frozen=True, eq=False)
class ContractedGraph:
    """A problem seen as nodes and nets; a net is the outputs that one set of nodes makes and reads."""

    problem: Problem
    node_of_unit: Ints  # (units,)
    seconds: Floats  # (nodes, devices) all ops
    held_bytes: Floats  # (nodes,) of weights, with their gradients and optimizer state
    edges: Ints  # (edges, 2) forward order between nodes, acyclic
    nets: tuple[tuple[int, ...], ...]  # the nodes of each net, sorted
    net_seconds: Floats  # (nets, devices) what a device pays that has a part of the net, but not all of it

    @classmethod
    def of(cls, problem: Problem, costs: Costs, label: Ints | None = None) -> ContractedGraph:
        """The contracted graph of a problem, where units of one label, (units,), are one node from the start."""
        label = np.arange(problem.graph.num_units) if label is None else label
        edges, count = _forward_edges(problem, label), int(label.max(initial=-1)) + 1
        label = strong_components(edges, count)[label]  # cycles are one
        label = np.unique(_with_free_ones_joined(problem, costs, label), return_inverse=True)[1].astype(np.int64)
        of_op = label[problem.graph.units]
        seconds = np.zeros((int(label.max(initial=-1)) + 1, len(problem.cluster)))
        np.add.at(seconds, of_op, costs.op_seconds)
        held = _held_bytes(problem, of_op)
        return cls(problem, label, seconds, held, _forward_edges(problem, label), *_nets(problem, of_op))

    def __len__(self) -> int:
        return len(self.seconds)

    @cached_property
    def order(self) -> list[int]:
        """A topological order, depth first: nodes that waited for a node alone come right after it."""
        first_op = np.full(len(self), len(self.problem.graph))  # (nodes,) its topological position
        np.minimum.at(first_op, self.node_of_unit, self.problem.units.first_position)
        following: list[list[int]] = [[] for _ in range(len(self))]
        awaited = np.bincount(self.edges[:, 1], minlength=len(self)).tolist()
        for producer, consumer in self.edges.tolist():
            following[producer].append(consumer)
        waiting = [node for node in np.argsort(first_op).tolist() if not awaited[node]]
        order: list[int] = []
        while waiting:
            order.append(waiting.pop())
            for node in sorted(following[order[-1]], key=first_op.__getitem__, reverse=True):
                awaited[node] -= 1
                if not awaited[node]:
                    waiting.append(node)
        return order


def _forward_edges(problem: Problem, label: Ints) -> Ints:
    """(edges, 2) between different labels: forward edges, and backward ones turned around where there is no other."""
    graph = problem.graph
    forward = graph.phase == Phase.FORWARD
    of_op = label[graph.units]
    has_forward = np.zeros(int(label.max(initial=-1)) + 1, np.bool_)
    has_forward[of_op[forward]] = True
    producer, consumer = graph.edges.T
    backward = ~forward[producer] & ~forward[consumer]
    orphaned = backward & ~(has_forward[of_op[producer]] & has_forward[of_op[consumer]])
    edges = np.concatenate([graph.edges[forward[producer] & forward[consumer]], graph.edges[orphaned][:, ::-1]])
    between, _ = distinct_pairs(of_op[edges])
    kept: Ints = between[between[:, 0] != between[:, 1]]
    return kept


def _with_free_ones_joined(problem: Problem, costs: Costs, label: Ints) -> Ints:
    """(units,) labels, where those that take no time and have one neighbour take its label."""
    graph = problem.graph
    forward = graph.phase == Phase.FORWARD
    of_op = label[graph.units]
    takes_time = np.zeros(int(label.max(initial=-1)) + 1, np.bool_)
    takes_time[of_op[(costs.op_seconds > 0).any(axis=1)]] = True
    around: dict[int, set[int]] = defaultdict(set)  # label -> labels whose forward ops its forward ops touch
    ends, is_forward = of_op[graph.edges], forward[graph.edges]
    onward = is_forward.all(axis=1)
    for a, b in distinct_pairs(ends[onward & (ends[:, 0] != ends[:, 1])])[0].tolist():
        around[a].add(b)
        around[b].add(a)
    bound = {*ends[is_forward & ~onward[:, None]].tolist()}  # labels whose forward ops touch a backward op
    free = {node for node in around if not takes_time[node] and node not in bound}
    joined = np.arange(len(takes_time))  # (labels,) what each has become
    waiting = sorted(free, reverse=True)
    while waiting:
        node = waiting.pop()
        if node in free and len(around[node]) == 1:
            (neighbour,) = around[node]
            joined[joined == node] = neighbour
            free.discard(node)
            around[neighbour].discard(node)
            if neighbour in free:
                waiting.append(neighbour)
    found: Ints = joined[label]
    return found


def _held_bytes(problem: Problem, of_op: Ints) -> Floats:
    """(nodes,) bytes of the weights that each node's ops read, with gradients and optimizer state."""
    op, weight = problem.graph.weight_uses.T
    per_op = np.bincount(op, weights=problem.weight_state_bytes[weight], minlength=len(of_op))
    return np.bincount(of_op, weights=per_op).astype(np.float64)


def _nets(problem: Problem, of_op: Ints) -> tuple[tuple[tuple[int, ...], ...], Floats]:
    """Distinct nets of two nodes or more, and the seconds (nets, devices) that moving their outputs takes."""
    moved = Moved.of(problem)
    pins: dict[int, set[int]] = defaultdict(set)
    read, reader = moved.reads.T
    ends = of_op[np.stack([moved.source[read], reader], axis=1)]
    shared = np.zeros(len(moved.source), np.bool_)  # (outputs,) that several nodes share
    shared[read[ends[:, 0] != ends[:, 1]]] = True
    for output, nodes in zip(read[shared[read]].tolist(), ends[shared[read]].tolist(), strict=True):
        pins[output].update(nodes)
    seconds: dict[tuple[int, ...], Floats] = defaultdict(lambda: np.zeros(len(problem.cluster)))
    for output, nodes in pins.items():
        if moved.seconds[output].any():
            seconds[tuple(sorted(nodes))] += moved.seconds[output]
    return tuple(seconds), np.array(list(seconds.values())).reshape(-1, len(problem.cluster))
