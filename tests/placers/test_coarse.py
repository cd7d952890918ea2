"""Large problems that a policy places in groups of units."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphs.files.load import load_cluster
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Ints
from graphs.problem import Problem
from placers.learned.sequential import coarse
from placers.learned.sequential.coarse import candidates_by_levels, grains, placed_in_groups
from placers.learned.sequential.placer import SequentialPlacer
from placers.learned.sequential.policy import SequentialPolicy
from placers.search.levels import at_finest
from tests.oracle.toys import random_graph
from tests.placers.bold import bold

LINKS = "p100:devices=3"


def problem_of(seed: int, ops: int) -> Problem:
    graph, cluster = random_graph(ops, seed), load_cluster(LINKS)
    return Problem(graph, cluster, op_seconds=np.full((len(graph), len(cluster)), 1e-3))


@given(st.integers(0, 2**16), st.integers(2, 40), st.integers(1, 20))
def test_units_of_a_group_go_together_and_no_more_groups_are_placed(seed: int, ops: int, most: int) -> None:
    problem = problem_of(seed, ops)
    seen: list[Problem] = []

    def candidates(of: Problem) -> Ints:
        seen.append(of)
        return np.stack([np.arange(len(of.units)), np.zeros(len(of.units), np.int64)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coarse, "MOST_UNITS", most)
        found = placed_in_groups(problem, candidates)
    (placed,) = seen
    assert found.shape == (2, len(problem.units))
    assert not found[1].any()
    if len(problem.units) > most:
        assert len(placed.units) <= most
        of_op = found[0][problem.graph.units]
        assert (of_op == placed.graph.units).all()
    else:
        assert placed is problem


@given(st.integers(0, 2**16), st.integers(2, 90), st.integers(0, 6), st.integers(1, 20))
def test_levels_are_four_times_as_fine_and_groups_parts_of_coarser_ones(
    seed: int, ops: int, groups: int, one_level: int
) -> None:
    problem = problem_of(seed, ops)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coarse, "ONE_LEVEL", one_level)
        levels = grains(problem, groups)
    assert levels[0] is problem
    if not groups or len(problem.units) <= max(one_level, groups):
        assert levels == (problem,)
        return
    assert [len(level.units) for level in levels[:0:-1]] == [groups * 4**i for i in range(len(levels) - 1)]
    for finer, coarser in itertools.pairwise(levels):
        assert len(coarser.units) < len(finer.units)
        pairs = {*zip(finer.graph.units.tolist(), coarser.graph.units.tolist(), strict=True)}
        assert len(pairs) == len(finer.units)


def test_every_level_is_a_pass_over_the_coarser_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coarse, "ONE_LEVEL", 10)
    policy, problem = bold(2), problem_of(1, 60)
    levels = grains(problem, 6)
    assert [len(level.units) for level in levels] == [60, 24, 6]
    (placement,) = policy.candidates(levels[2], 1, 0)
    for level in (1, 0):
        batch = policy.stack([policy.view(levels[level])])
        (placement,) = policy.passes_over(batch, at_finest(levels[level : level + 2], 1, placement)[None])
    assert np.array_equal(candidates_by_levels(policy, levels, 1, 0), placement[None])
    some = candidates_by_levels(policy, levels, 8, 0)
    assert np.array_equal(some[0], placement)
    assert np.array_equal(some[6:], policy.candidates(problem, 2, 0)), "a quarter of them knows no levels"


def test_what_is_on_one_device_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coarse, "ONE_LEVEL", 10)
    policy, problem = bold(2), problem_of(1, 60)
    monkeypatch.setattr(policy, "candidates", lambda of, count, seed: np.ones((count, len(of.units)), np.int64))
    assert (candidates_by_levels(policy, grains(problem, 6), 3, 0) == 1).all()


def test_the_placer_has_levels_for_large_problems_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(1, 60)
    fine = by_name.build("placers", "sequential:untrained=yes")
    tied = by_name.build("placers", "sequential:untrained=yes,groups=8")
    assert isinstance(tied, SequentialPlacer)
    assert tied.name == "sequential:untrained=yes,groups=8"
    assert tied.place(problem).plan == fine.place(problem).plan
    monkeypatch.setattr(coarse, "ONE_LEVEL", 10)
    assert isinstance(tied.policy, SequentialPolicy)
    by_levels = candidates_by_levels(tied.policy, grains(problem, 8), 1, 0)[0]
    assert np.array_equal(tied.place(problem).plan.per_unit(problem), by_levels)
    monkeypatch.setattr(coarse, "MOST_UNITS", 20)
    devices = tied.place(problem).plan.per_unit(problem)
    problems: list[Problem] = []

    def candidates(of: Problem) -> Ints:
        problems.append(of)
        return np.zeros((1, len(of.units)), np.int64)

    placed_in_groups(problem, candidates)
    groups = defaultdict[int, set[int]](set)
    for unit, group in zip(problem.graph.units.tolist(), problems[0].graph.units.tolist(), strict=True):
        groups[group].add(int(devices[unit]))
    assert len(groups) <= 20
    assert all(len(of) == 1 for of in groups.values())


def test_a_number_of_groups_below_zero_is_refused() -> None:
    with pytest.raises(InputError, match="groups to be at least 0"):
        by_name.build("placers", "sequential:untrained=yes,groups=-1")
