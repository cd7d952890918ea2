"""A limit on memory is kept where it can be, and how far the cost may be from the least is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placers.splits.memory_limit import least_within
from placers.splits.node_elimination import least_by_node_elimination
from placers.splits.pairwise_costs import PairwiseCosts
from tests.drawn import examples
from tests.placers.splits.random_costs import assignments, random_costs


@settings(max_examples=examples(80, 12), deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 1.2))
def test_the_bound_holds_and_what_is_found_is_within_the_limit(seed: int, share: float) -> None:
    costs = random_costs(seed, most_variables=6)
    rng = np.random.default_rng(seed)
    held = [rng.integers(0, 9, len(alone)).astype(np.float64) for alone in costs.alone]
    every = [
        (cost, sum(of[choice] for of, choice in zip(held, chosen, strict=True)))
        for cost, chosen in assignments(costs) if np.isfinite(cost)
    ]  # fmt: skip
    lowest, highest = min(size for _, size in every), max(size for _, size in every)
    limit = lowest - 1 + share * (highest - lowest + 1)
    found = least_within(costs, held, limit)
    assert found.fits == (limit >= lowest)
    assert found.cost == pytest.approx(costs.cost(found.chosen), abs=1e-9)
    assert found.held == sum(of[choice] for of, choice in zip(held, found.chosen, strict=True))
    if found.fits:
        best = min(cost for cost, size in every if size <= limit)
        assert found.held <= limit
        assert found.bound - 1e-9 <= best <= found.cost + 1e-9
    else:
        assert found.held == lowest
        assert np.isnan(found.gap)


def test_corners_of_the_hull_are_found_exactly() -> None:
    """Three layers, whose weights may be kept whole (no cost) or in two, four, eight parts (a gather each)."""
    costs = PairwiseCosts.summed([np.array([0.0, 1.0, 2.0, 4.0]) * scale for scale in (1.0, 3.0, 10.0)], [])
    held = [np.array([8.0, 4.0, 2.0, 1.0])] * 3
    corners = [(24, 0), (20, 1), (18, 2), (14, 5), (12, 8), (11, 10), (7, 20), (5, 30), (4, 36), (3, 56)]
    for limit, cost in corners:
        found = least_within(costs, held, limit)
        assert (found.held, found.cost) == (limit, cost)
        assert found.gap == pytest.approx(0.0, abs=1e-9)
    between = least_within(costs, held, 15.0, least_by_node_elimination)
    assert (between.held, between.cost, between.bound) == (14.0, 5.0, 4.25)
    assert between.gap == 0.75 / 5.0
    assert not least_within(costs, held, 2.0).fits


def test_of_equal_layers_only_as_many_are_divided_as_must_be() -> None:
    layers = 9
    costs = PairwiseCosts.summed([np.array([0.0, 1.0])] * layers, [])
    found = least_within(costs, [np.array([2.0, 1.0])] * layers, 15.0)
    assert (found.cost, found.held, found.gap) == (3.0, 15.0, 0.0)
