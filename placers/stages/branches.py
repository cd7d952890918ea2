"""Branches joined, so that the graph becomes nearly a path, which PipeDream's optimizer needs.

Of each biconnected component of the graph, the nodes with an edge in it become one, as in the baseline "PipeDream" of
"Efficient Algorithms for Device Placement of DNN Graph Operators" (Tarnawski et al., NeurIPS 2020). The forward ops of
a unit are one node there and the backward ops another; joining either joins the unit.
"""

from __future__ import annotations

import networkx as nx
import numpy as np

from envs.costs.costs import Costs
from graphs.op_graph import Bools, Ints, Phase
from graphs.problem import Problem

STACK = 4  # more readers than a block has branches: an op with more feeds every layer of a stack


def without_branches(problem: Problem, costs: Costs) -> Ints:
    """(units,) a label for each, where units whose edges lie in one biconnected component share one.

    The released program leaves out the edges from inputs, masks and the like, which feed many layers at no cost. Here
    these are forward units that take no time and either read and hold nothing, or are read by more than four. It means
    to leave out their gradients too, but its numbering misses them; so all backward edges stay.
    """
    graph = problem.graph
    half = graph.units * 2 + (graph.phase != Phase.FORWARD)  # forward and backward ops of a unit
    edges = np.unique(half[graph.edges], axis=0).reshape(-1, 2)
    edges = edges[edges[:, 0] != edges[:, 1]]
    edges = edges[~_feeds_many(problem, costs, half, edges)[edges[:, 0]]]
    joined: nx.Graph[int] = nx.Graph()
    joined.add_nodes_from(range(graph.num_units))
    sources: dict[tuple[int, int], list[int]] = {}
    for u, v in edges.tolist():
        sources.setdefault((min(u, v), max(u, v)), []).append(u)
    whole: nx.Graph[int] = nx.Graph()
    whole.add_edges_from(sources)
    for component in nx.biconnected_component_edges(whole):
        nx.add_path(joined, [source // 2 for u, v in component for source in sources[min(u, v), max(u, v)]])
    label = np.empty(graph.num_units, np.int64)
    for number, together in enumerate(nx.connected_components(joined)):
        label[list(together)] = number
    return label


def _feeds_many(problem: Problem, costs: Costs, half: Ints, edges: Ints) -> Bools:
    """(halves,) whether each is an input, a mask or the like."""
    count = 2 * problem.graph.num_units
    work = np.bincount(half, weights=costs.op_seconds.max(axis=1), minlength=count)
    held = np.bincount(half, weights=problem.graph.weight_bytes, minlength=count)
    reads, is_read = (np.bincount(edges[:, end], minlength=count) for end in (1, 0))
    nothing = (reads == 0) & (held == 0)
    is_forward = np.arange(count) % 2 == 0
    feeds: Bools = is_forward & (work == 0) & (nothing | (is_read > STACK))
    return feeds
