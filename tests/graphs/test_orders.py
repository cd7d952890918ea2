"""Orders, levels, longest paths and distinct pairs equal plain definitions of them."""

from __future__ import annotations

from random import Random

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from envs.simulation.topological import topological_position
from graphs.algorithms.order import Ints, is_acyclic, levels, ready_first, topological_order
from graphs.algorithms.pairs import distinct_pairs
from graphs.op_graph.paths import earliest_starts, longest_remaining
from tests.oracle.toys import random_graph

Edges = list[tuple[int, int]]


def graphs(*, acyclic: bool) -> st.SearchStrategy[tuple[int, Edges]]:
    """Nodes, which are numbered in no topological order, and edges, some of them twice."""

    def of(case: tuple[list[int], Edges]) -> tuple[int, Edges]:
        number, pairs = case
        kept = [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]] if acyclic else pairs
        return len(number), [(number[u], number[v]) for u, v in kept]

    def cases(nodes: int) -> st.SearchStrategy[tuple[list[int], Edges]]:
        pairs = st.lists(st.tuples(*[st.integers(0, nodes - 1)] * 2), max_size=40)
        return st.tuples(st.permutations(range(nodes)), pairs)

    return st.integers(1, 15).flatmap(cases).map(of)


def array(edges: Edges) -> Ints:
    return np.array(edges, np.int64).reshape(-1, 2)


def longest_path_to(node: int, edges: Edges) -> int:
    """By its definition."""
    return max((longest_path_to(u, edges) + 1 for u, v in edges if v == node), default=0)


@given(graphs(acyclic=True))
def test_levels_are_the_longest_paths_from_the_sources_or_to_the_sinks(case: tuple[int, Edges]) -> None:
    nodes, edges = case
    distinct = sorted(set(edges))
    assert levels(array(edges), nodes).tolist() == [longest_path_to(node, distinct) for node in range(nodes)]
    turned = [(v, u) for u, v in distinct]
    behind = [longest_path_to(node, turned) for node in range(nodes)]
    to_sinks = levels(array(edges), nodes, from_sources=False)
    assert to_sinks.tolist() == [max(behind) - distance for distance in behind]


@given(graphs(acyclic=True))
def test_nodes_come_as_soon_as_what_feeds_them_has(case: tuple[int, Edges]) -> None:
    """Level by level; those of a level in the order of what they waited for last, then of their numbers."""
    nodes, edges = case
    order, level = topological_order(array(edges), nodes).tolist(), levels(array(edges), nodes).tolist()
    place = {node: position for position, node in enumerate(order)}
    waited = {node: max((place[u] for u, v in edges if v == node), default=-1) for node in range(nodes)}
    assert order == sorted(range(nodes), key=lambda node: (level[node], waited[node], node))
    assert ready_first(array(edges), np.array([place[node] for node in range(nodes)])).tolist() == order
    assert topological_position(array(edges), nodes).tolist() == [place[node] for node in range(nodes)]


@given(graphs(acyclic=True), st.randoms(use_true_random=False))
def test_of_the_nodes_that_are_ready_the_one_of_least_rank_comes_first(case: tuple[int, Edges], random: Random) -> None:
    nodes, edges = case
    rank, left, order = [random.randrange(3) for _ in range(nodes)], set(range(nodes)), list[int]()
    while left:
        ready = [node for node in left if not any(u in left for u, v in edges if v == node)]
        order.append(min(ready, key=lambda node: (rank[node], node)))
        left.remove(order[-1])
    assert ready_first(array(edges), np.array(rank)).tolist() == order


@given(graphs(acyclic=False))
def test_an_order_is_shorter_if_there_is_a_cycle(case: tuple[int, Edges]) -> None:
    nodes, edges = case
    is_acyclic = nx.is_directed_acyclic_graph(nx.DiGraph(edges))
    assert (len(topological_order(array(edges), nodes)) == nodes) == is_acyclic


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_distinct_pairs_are_those_of_numpy(pairs: Edges) -> None:
    found, which = distinct_pairs(array(pairs))
    assert [tuple(pair) for pair in found.tolist()] == sorted(set(pairs))
    assert [tuple(pair) for pair in found[which].tolist()] == pairs


@given(st.integers(1, 40), st.integers(0, 999))
def test_the_longest_path_before_and_behind_each_op(ops: int, seed: int) -> None:
    """In whole seconds, so that sums are exact; edges take as long as their number."""
    graph = random_graph(ops, seed)
    seconds, between = graph.flops, np.arange(len(graph.edges), dtype=np.float64)
    before, behind, delayed = np.zeros(ops), seconds.copy(), seconds.copy()
    for producer, consumer in graph.edges.tolist():  # sorted by consumer: whatever feeds the producer came before
        before[consumer] = max(before[consumer], before[producer] + seconds[producer])
    for edge, (producer, consumer) in reversed(list(enumerate(graph.edges.tolist()))):
        behind[producer] = max(behind[producer], seconds[producer] + behind[consumer])
        delayed[producer] = max(delayed[producer], seconds[producer] + between[edge] + delayed[consumer])
    assert earliest_starts(graph, seconds).tolist() == before.tolist()
    assert longest_remaining(graph, seconds).tolist() == behind.tolist()
    assert longest_remaining(graph, seconds, between).tolist() == delayed.tolist()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=14))
def test_a_graph_is_acyclic_if_all_its_nodes_come_in_a_topological_order(pairs: list[tuple[int, int]]) -> None:
    edges = np.array(pairs, np.int64).reshape(-1, 2)
    assert is_acyclic(edges, 10) == (len(topological_order(edges, 10)) == 10)
