"""Large problems that a policy places in groups of units."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.load import load_cluster
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.sequential import coarse
from placers.learned.sequential.coarse import placed_in_groups
from placers.learned.sequential.placer import SequentialPlacer
from tests.oracle.toys import random_graph

LINKS = "p100:devices=3"


def problem_of(seed: int, ops: int) -> Problem:
    graph, cluster = random_graph(ops, seed), load_cluster(LINKS)
    return Problem(graph, cluster, op_seconds=np.full((len(graph), len(cluster)), 1e-3))


@given(st.integers(0, 2**16), st.integers(2, 40), st.integers(1, 12), st.integers(1, 20))
def test_units_of_a_group_go_together_and_no_more_groups_are_placed(
    seed: int, ops: int, groups: int, most: int
) -> None:
    problem = problem_of(seed, ops)
    seen: list[Problem] = []

    def candidates(of: Problem) -> Ints:
        seen.append(of)
        return np.stack([np.arange(len(of.units)), np.zeros(len(of.units), np.int64)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coarse, "MOST_UNITS", most)
        found = placed_in_groups(problem, groups, candidates)
    (placed,) = seen
    assert found.shape == (2, len(problem.units))
    assert not found[1].any()
    if len(problem.units) > max(most, groups):
        assert len(placed.units) <= groups
        of_op = found[0][problem.graph.units]
        assert (of_op == placed.graph.units).all()
    else:
        assert placed is problem


def test_the_placer_ties_large_problems_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(1, 60)
    fine = by_name.build("placers", "sequential:untrained=yes")
    tied = by_name.build("placers", "sequential:untrained=yes,groups=8")
    assert isinstance(tied, SequentialPlacer)
    assert tied.name == "sequential:untrained=yes,groups=8"
    assert tied.place(problem).plan == fine.place(problem).plan
    monkeypatch.setattr(coarse, "MOST_UNITS", 20)
    devices = tied.place(problem).plan.per_unit(problem)
    problems: list[Problem] = []

    def candidates(of: Problem) -> Ints:
        problems.append(of)
        return np.zeros((1, len(of.units)), np.int64)

    placed_in_groups(problem, 8, candidates)
    groups = defaultdict[int, set[int]](set)
    for unit, group in zip(problem.graph.units.tolist(), problems[0].graph.units.tolist(), strict=True):
        groups[group].add(int(devices[unit]))
    assert len(groups) <= 8
    assert all(len(of) == 1 for of in groups.values())


def test_a_number_of_groups_below_zero_is_refused() -> None:
    with pytest.raises(InputError, match="groups to be at least 0"):
        by_name.build("placers", "sequential:untrained=yes,groups=-1")
