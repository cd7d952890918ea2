"""Sets of nodes that hold all that their members wait for."""

import numpy as np

from placers.pipelines.cutting.ideals import Ideals


def members(ideals: Ideals) -> list[list[int]]:
    return [[node for node in range(64) if int(mask) >> node & 1] for mask in ideals.masks[:, 0]]


def test_the_ideals_of_an_order_are_its_beginnings() -> None:
    chain = Ideals.chain([2, 0, 1])
    assert members(chain) == [[], [2], [0, 2], [0, 1, 2]]
    assert (chain.step_node.tolist(), chain.step_to.tolist()) == ([2, 0, 1], [0, 1, 2])


def test_a_graph_of_one_order_has_the_ideals_of_that_order() -> None:
    every = Ideals.all(3, np.array([[2, 0], [0, 1]]), 10)
    assert every is not None
    assert members(every) == members(Ideals.chain([2, 0, 1]))
    assert Ideals.all(3, np.zeros((0, 2), np.int64), 7) is None, "three nodes that wait for nothing have eight"


def test_sets_of_many_nodes_are_of_several_words() -> None:
    order = np.random.default_rng(0).permutation(130).tolist()
    chain = Ideals.chain(order)
    assert chain.masks.shape == (131, 3)
    for count, words in enumerate(chain.masks.tolist()):
        held = {node for node in range(192) if words[node // 64] >> node % 64 & 1}
        assert held == set(order[:count])
    assert Ideals.chain(range(64)).masks.shape == (65, 1)
