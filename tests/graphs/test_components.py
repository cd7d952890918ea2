"""Components are those of SciPy, numbered in the order of their first nodes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components as of_scipy

from graphs.algorithms.components import Ints, connected_components
from graphs.algorithms.order import numbered_by_first


def expected(pairs: Ints, nodes: int) -> Ints:
    ties = coo_array((np.ones(len(pairs)), tuple(pairs.T)), shape=(nodes, nodes))
    return numbered_by_first(of_scipy(ties, directed=False)[1])


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))))
def test_components_are_those_of_scipy(case: tuple[int, list[tuple[int, int]]]) -> None:
    nodes, ties = case
    pairs = np.array(ties, np.int64).reshape(-1, 2)
    np.testing.assert_array_equal(connected_components(pairs, nodes), expected(pairs, nodes))


def test_a_long_chain_in_any_order_is_one_component() -> None:
    order = np.random.default_rng(0).permutation(10_000)
    pairs = np.stack([order[:-1], order[1:]], axis=1)
    assert not connected_components(pairs, len(order)).any()
    np.testing.assert_array_equal(connected_components(pairs[::2], len(order)), expected(pairs[::2], len(order)))
