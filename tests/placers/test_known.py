"""A search recalls of a placement what a simulation of it has found, and nothing of any other."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some

from graphs.problem import Problem
from placers.search.known import LAST_BITS, Known, decides, key_after, key_of, key_of_order, recalled, remember
from placers.search.levels import levels_of
from placers.search.moves import MoveTables, move
from tests.oracle.toys import random_graph, toy_cluster


@settings(deadline=None)
@given(ops=some.integers(1, 30) | some.just(70), devices=some.integers(1, 4), seed=some.integers(0, 99))
def test_a_key_is_that_of_the_placement_however_it_was_reached(ops: int, devices: int, seed: int) -> None:
    problem = Problem(random_graph(ops, seed), toy_cluster(devices))
    coarser = levels_of(problem)[1:]
    known, tables, generator = Known.of(problem), MoveTables.of(problem, coarser), np.random.default_rng(seed)
    placement = np.zeros(ops, np.uint32)
    key, keys = key_of(known, placement), {}
    for step in range(50):
        level = step % (1 + len(coarser))
        key = key_after(known, key, tables, placement, move(tables, placement, level, generator))
        assert key == key_of(known, placement)
        keys[placement.tobytes()] = int(key)
    assert len(set(keys.values())) == len(keys)


def test_orders_have_bits_of_their_own() -> None:
    with np.errstate(over="ignore"):
        kept = {int(key_of_order(simulations)) for simulations in range(10_000)}
    assert len(kept) == 10_000
    assert len({key & int(LAST_BITS) for key in kept}) > 8_000  # of 32,768 slots


def test_seconds_are_recalled_and_so_is_a_limit_that_was_exceeded() -> None:
    known = Known.of(Problem(random_graph(3, seed=0), toy_cluster(2)))
    timed, given_up, never = (key_of(known, np.array(each, np.uint32)) for each in ([0, 0, 1], [0, 1, 0], [1, 0, 0]))
    remember(known, timed, 5.0, 4.0)
    remember(known, given_up, np.inf, 4.0)
    for limit in (3.0, 4.0, 6.0):
        assert decides(known, timed, limit)
        assert recalled(known, timed) == 5.0
        assert decides(known, given_up, limit) == (limit <= 4.0)
        assert recalled(known, given_up) == np.inf
        assert not decides(known, never, limit)
