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
