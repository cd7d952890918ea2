"""OptCNN's eliminations keep the least cost, and leave two nodes of a series-parallel graph."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.foundation.errors import InputError
from placers.splits.bucket_elimination import least
from placers.splits.layer_costs import least_of_layers
from placers.splits.node_elimination import least_by_node_elimination, reduced
from placers.splits.pairwise_costs import PairwiseCosts
from tests.drawn import examples
from tests.placers.splits.random_costs import assignments, random_costs, series_parallel


@settings(max_examples=examples(80, 12), deadline=None)
@given(st.integers(0, 2**32))
def test_a_series_parallel_graph_is_left_with_two_nodes_and_its_least_cost(seed: int) -> None:
    costs = series_parallel(seed)
    assert reduced(costs).nodes.tolist() == [0, 1]
    found = least_by_node_elimination(costs)
    assert found.cost == pytest.approx(min(assignments(costs))[0] if len(costs) <= 7 else least(costs).cost, abs=1e-9)
    assert costs.cost(found.chosen) == pytest.approx(found.cost, abs=1e-9)


@settings(max_examples=examples(60, 9), deadline=None)
@given(st.integers(0, 2**32))
def test_on_any_graph_it_finds_what_bucket_elimination_finds(seed: int) -> None:
    costs = random_costs(seed)
    assert least_by_node_elimination(costs).cost == pytest.approx(least(costs).cost, abs=1e-9)
    left = reduced(costs)
    assert least(left.costs).cost == pytest.approx(least(costs).cost, abs=1e-9)
    assert costs.cost(left.undone(least(left.costs).chosen)) == pytest.approx(least(costs).cost, abs=1e-9)


@settings(max_examples=examples(60, 9), deadline=None)
@given(st.integers(0, 2**32))
def test_what_hangs_on_one_node_is_folded_without_changing_the_least_cost(seed: int) -> None:
    costs = random_costs(seed)
    assert least_of_layers(costs).cost == pytest.approx(least(costs).cost, abs=1e-9)


def test_a_node_with_two_inputs_stays() -> None:
    table = np.zeros((2, 2))
    costs = PairwiseCosts.summed([np.zeros(2)] * 5, [(0, 2, table), (1, 2, table), (2, 3, table), (3, 4, table)])
    assert reduced(costs).nodes.tolist() == [0, 1, 2, 4]


def test_nodes_with_one_choice_are_nothing_to_enumerate() -> None:
    many = PairwiseCosts.summed([np.ones(1)] * 99 + [np.zeros(2)], [(v, 99, np.array([[1.0, 0.5]])) for v in range(99)])
    assert least_by_node_elimination(many).cost == least(many).cost == 99 + 49.5


def test_as_many_as_may_remain_are_enumerated() -> None:
    two = PairwiseCosts.summed([np.zeros(2)] * 2, [(0, 1, np.array([[3.0, 1.0], [2.0, 4.0]]))])
    assert least_by_node_elimination(two, most=4).chosen.tolist() == [0, 1]
    with pytest.raises(InputError, match="leave 2 nodes with 4 assignments to enumerate, more than 3"):
        least_by_node_elimination(two, most=3)


def test_too_many_that_remain_are_refused_by_one_sentence() -> None:
    star = PairwiseCosts.summed([np.zeros(8)] * 21, [(v, 20, np.zeros((8, 8))) for v in range(20)])
    with pytest.raises(InputError, match=r"leave 21 nodes with .* assignments to enumerate, more than .* bucket"):
        least_by_node_elimination(star)
    assert least(star).cost == 0.0
    assert least_of_layers(star).cost == 0.0  # its rays are folded
