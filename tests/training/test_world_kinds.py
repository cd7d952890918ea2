"""Kinds of random graphs: of the size that was asked for, in a topological order, and what each is by definition."""

from collections import Counter

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.problems.random.kinds import FEWEST_NODES, KINDS
from training.problems.random.numeric_kinds import SUM
from training.problems.random.shape import NO_WEIGHT, Shape, ShapeDraft

SEEDS = st.integers(0, 2**32)
NODES = st.integers(FEWEST_NODES, 200)


def drawn(kind: str, seed: int, nodes: int) -> Shape:
    return KINDS[kind](np.random.default_rng(seed), nodes)


def digraph(shape: Shape) -> "nx.DiGraph[int]":
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(shape)))
    graph.add_edges_from(shape.edges.tolist())
    return graph


@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS, nodes=NODES)
def test_every_kind_keeps_to_size_and_order_and_the_same_seed_gives_the_same(kind: str, seed: int, nodes: int) -> None:
    shape = drawn(kind, seed, nodes)
    assert nodes / 2 <= len(shape) <= nodes
    assert (shape.edges[:, 0] < shape.edges[:, 1]).all()
    assert (shape.edges >= 0).all()
    assert shape.edges.max(initial=0) < len(shape)
    assert len({*map(tuple, shape.edges.tolist())}) == len(shape.edges), "no edge is there twice"
    assert (shape.roles >= 0).all()
    assert len(shape.weights) == len(shape)
    again = drawn(kind, seed, nodes)
    assert all(np.array_equal(value, vars(again)[key]) for key, value in vars(shape).items())


def test_a_chain_is_a_chain() -> None:
    assert drawn("chain", 3, 9).edges.tolist() == [[i, i + 1] for i in range(8)]


@given(seed=SEEDS, nodes=NODES)
def test_in_a_tree_one_direction_is_unique(seed: int, nodes: int) -> None:
    graph = digraph(drawn("tree", seed, nodes))
    assert nx.is_tree(graph)
    assert max(dict(graph.in_degree()).values()) <= 1 or max(dict(graph.out_degree()).values()) <= 1


@given(seed=SEEDS, nodes=NODES)
def test_between_fork_and_join_are_chains(seed: int, nodes: int) -> None:
    graph = digraph(drawn("fan", seed, nodes))
    joints = [node for node in graph if (graph.in_degree(node), graph.out_degree(node)) != (1, 1)]
    first, *_, last = joints
    branches = graph.out_degree(first)
    assert branches >= 2
    degrees = {(0, branches): [first], (branches, branches): joints[1:-1], (branches, 0): [last]}
    assert all((graph.in_degree(node), graph.out_degree(node)) == of for of, nodes in degrees.items() for node in nodes)
    between = graph.subgraph([node for node in graph if node not in joints])
    parts = list(nx.weakly_connected_components(between))
    assert len(parts) == branches * (len(joints) - 1), "each branch of each round is a part by itself"
    assert all(between.subgraph(part).number_of_edges() == len(part) - 1 for part in parts)


@given(seed=SEEDS, nodes=NODES)
def test_series_parallel_graphs_reduce_to_one_edge(seed: int, nodes: int) -> None:
    graph = digraph(drawn("series_parallel", seed, nodes))
    inner = [node for node in graph if graph.in_degree(node) == graph.out_degree(node) == 1]
    while inner:
        node = inner.pop()
        if node not in graph or graph.in_degree(node) != 1 or graph.out_degree(node) != 1:
            continue
        [source], [target] = graph.predecessors(node), graph.successors(node)
        graph.remove_node(node)
        graph.add_edge(source, target)  # one next to it, if there is one, is the same from now on
        inner += [each for each in (source, target) if graph.in_degree(each) == graph.out_degree(each) == 1]
    assert graph.number_of_nodes() == 2
    assert graph.number_of_edges() == 1


@given(seed=SEEDS, nodes=NODES)
def test_layers_read_the_two_before_them_at_most(seed: int, nodes: int) -> None:
    graph = digraph(drawn("layered", seed, nodes))
    level: dict[int, int] = {}
    for node in nx.topological_sort(graph):
        level[node] = 1 + max((level[each] for each in graph.predecessors(node)), default=-1)
    assert all(level[target] - level[source] in (1, 2) for source, target in graph.edges)


@given(seed=SEEDS, nodes=NODES)
def test_components_are_at_least_two_parts(seed: int, nodes: int) -> None:
    assert 2 <= nx.number_weakly_connected_components(digraph(drawn("components", seed, nodes))) <= 8


@given(seed=SEEDS, nodes=NODES)
def test_in_tiled_products_something_is_added_up(seed: int, nodes: int) -> None:
    shape = drawn("tiles", seed, nodes)
    graph = digraph(shape)
    sums = np.flatnonzero(shape.roles == SUM)
    assert len(sums)
    assert all(graph.in_degree(int(node)) >= 2 for node in sums)


@given(seed=SEEDS, nodes=NODES)
def test_a_butterfly_reads_two_and_is_read_by_two(seed: int, nodes: int) -> None:
    graph = digraph(drawn("butterfly", seed, nodes))
    assert {degree for _, degree in graph.in_degree()} == {0, 2}
    assert {degree for _, degree in graph.out_degree()} == {0, 2}


def test_an_elimination_of_three_tiles() -> None:
    """Factor, solve and update as in a textbook: 10 nodes for 3 by 3 tiles."""
    seed = next(seed for seed in range(99) if int(np.random.default_rng(seed).integers(3)) == 0)  # no larger matrix
    shape = drawn("elimination", seed, 10)
    assert Counter(shape.roles.tolist()) == {0: 3, 1: 3, 2: 3, 3: 1}
    factors = np.flatnonzero(shape.roles == 0)
    graph = digraph(shape)
    assert nx.descendants(graph, 0) == {*range(1, 10)}, "all waits for the first tile"
    assert not list(graph.successors(int(factors[-1])))


@given(seed=SEEDS, nodes=NODES)
def test_recurrent_nets_share_weights_over_time(seed: int, nodes: int) -> None:
    shape = drawn("recurrent", seed, nodes)
    users = np.bincount(shape.weights[shape.weights != NO_WEIGHT])
    assert (users == users[0]).all(), "each is used at every step"
    assert users[0] >= 2
    assert nx.number_weakly_connected_components(digraph(shape)) == 1


@pytest.mark.parametrize("kind", ["residual", "attention"])
@given(seed=SEEDS, nodes=NODES)
def test_blocks_hang_together_and_have_one_source(kind: str, seed: int, nodes: int) -> None:
    graph = digraph(drawn(kind, seed, nodes))
    assert [node for node, degree in graph.in_degree() if degree == 0] == [0]


def test_a_draft_is_cut_where_it_is_asked_to_be() -> None:
    draft = ShapeDraft()
    first = draft.add(weight="shared")
    second = draft.add([first, first], role=2, weight="shared")
    draft.add([first, second])
    assert draft.shape(2).edges.tolist() == [[0, 1]]
    shape = draft.shape(9)
    assert shape.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert shape.roles.tolist() == [0, 2, 0]
    assert shape.weights.tolist() == [0, 0, NO_WEIGHT]
