"""Bucket elimination finds the least cost of any pairwise costs, in any order, or says that it would take too much."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.foundation.errors import InputError
from placers.splits import elimination_order
from placers.splits.bucket_elimination import least
from placers.splits.elimination_order import described, min_fill_order
from placers.splits.pairwise_costs import PairwiseCosts
from tests.drawn import examples
from tests.placers.splits.random_costs import assignments, random_costs, series_parallel


@settings(max_examples=examples(120, 15), deadline=None)
@given(st.integers(0, 2**32))
def test_the_least_cost_is_that_of_brute_force_and_the_assignment_costs_what_is_said(seed: int) -> None:
    costs = random_costs(seed)
    found = least(costs)
    assert found.cost == pytest.approx(min(assignments(costs))[0], abs=1e-9)
    assert costs.cost(found.chosen) == pytest.approx(found.cost, abs=1e-9)


@settings(max_examples=examples(40, 9), deadline=None)
@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_neither_the_order_of_elimination_nor_that_of_variables_matters(seed: int, random) -> None:  # type: ignore[no-untyped-def]
    costs = random_costs(seed, most_variables=10, most_choices=3)
    order = list(range(len(costs)))
    random.shuffle(order)
    expected = least(costs).cost
    assert least(costs, described(costs.choices.tolist(), costs.pairs, order)).cost == pytest.approx(expected, abs=1e-9)
    number = {variable: place for place, variable in enumerate(order)}
    terms = [(number[u], number[v], table) for u, v, table in costs.terms()]
    renamed = PairwiseCosts.summed([costs.alone[variable] for variable in order], terms[::-1])
    assert least(renamed).cost == pytest.approx(expected, abs=1e-9)


def _width(costs: PairwiseCosts) -> int:
    return min_fill_order(costs.choices, costs.pairs).width


def cycle(variables: int, choices: int, reach: int) -> PairwiseCosts:
    """Variables in a ring, each joined to so many that follow."""
    rng = np.random.default_rng(0)
    pairs = [(v, (v + step) % variables) for v in range(variables) for step in range(1, reach + 1)]
    return PairwiseCosts.summed(
        [rng.random(choices) for _ in range(variables)], [(u, v, rng.random((choices, choices))) for u, v in pairs]
    )


def test_the_order_of_least_fill_has_the_width_of_known_graphs() -> None:
    path = PairwiseCosts.summed([np.zeros(2)] * 9, [(v, v + 1, np.zeros((2, 2))) for v in range(8)])
    star = PairwiseCosts.summed([np.zeros(2)] * 9, [(0, v, np.zeros((2, 2))) for v in range(1, 9)])
    complete = PairwiseCosts.summed([np.zeros(2)] * 6, [(u, v, np.zeros((2, 2))) for u in range(6) for v in range(u)])
    assert [_width(costs) for costs in (path, star, cycle(9, 2, 1), cycle(9, 2, 2), complete)] == [
        1, 1, 2, 4, 5,
    ]  # fmt: skip


@settings(max_examples=examples(30, 12), deadline=None)
@given(st.integers(0, 2**32))
def test_a_series_parallel_graph_has_width_two_at_most(seed: int) -> None:
    assert _width(series_parallel(seed, most_steps=30, most_choices=2)) <= 2


@settings(max_examples=examples(30, 12), deadline=None)
@given(st.integers(0, 2**32))
def test_tables_are_as_large_as_was_said_before(seed: int) -> None:
    costs = random_costs(seed)
    order = min_fill_order(costs.choices, costs.pairs)
    scopes = [
        np.prod([costs.choices[other] for other in (variable, *scope)])
        for variable, scope in zip(order.order, order.scopes, strict=True)
    ]
    assert order.largest == max(scopes)
    assert order.held_bytes >= order.largest * elimination_order.COST_BYTES


def test_what_needs_too_much_memory_is_refused_before_it_is_allocated() -> None:
    with pytest.raises(InputError, match=r"tables of .* since \d+ choices .* at most 1\.07e\+09 are"):
        least(cycle(60, 8, 10))
    with pytest.raises(InputError, match="at most 100 are allowed"):
        least(cycle(9, 2, 1), most_bytes=100)


def test_a_thousand_variables_are_fine_where_the_width_is_small() -> None:
    rng = np.random.default_rng(0)
    costs = PairwiseCosts.summed(
        [rng.random(8) for _ in range(1000)], [(v, v + 1, rng.random((8, 8))) for v in range(999)]
    )
    best = costs.alone[0]
    for table, alone in zip(costs.together, costs.alone[1:], strict=True):
        best = (best[:, None] + table).min(axis=0) + alone
    assert least(costs).cost == pytest.approx(best.min(), abs=1e-9)


def test_terms_of_tied_variables_are_added_up() -> None:
    table = np.array([[1.0, 5.0], [7.0, 2.0]])
    costs = PairwiseCosts.summed([np.zeros(2), np.array([1.0, 0.0])], [(0, 1, table), (1, 0, table), (0, 0, table)])
    assert costs.alone[0].tolist() == [1.0, 2.0]
    assert costs.together[0].tolist() == [[2.0, 12.0], [12.0, 4.0]]
    assert least(costs).cost == 4.0  # 1 + 1 + 2 = 4, and not 2 + 0 + 4
    assert least(PairwiseCosts.summed([], [])).cost == 0.0


@pytest.mark.parametrize(
    ("alone", "terms", "sentence"),
    [
        ([np.zeros(0)], [], "variable 0 has no choice"),
        ([np.array([np.nan])], [], "costs of 0 hold NaN"),
        ([np.zeros(2), np.zeros(2)], [(0, 1, np.full((2, 2), -np.inf))], r"costs of \(0, 1\) hold NaN or minus"),
        ([np.zeros(1), np.zeros(2)], [(0, 1, np.zeros((2, 1)))], r"have shape \(2, 1\); expected \(1, 2\)"),
    ],
)
def test_costs_that_are_none_are_refused(alone, terms, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=sentence):
        PairwiseCosts.summed(alone, terms)


def test_it_is_said_if_every_assignment_is_forbidden() -> None:
    costs = PairwiseCosts.summed([np.zeros(2)] * 2, [(0, 1, np.full((2, 2), np.inf))])
    with pytest.raises(InputError, match="every assignment is forbidden"):
        least(costs)
