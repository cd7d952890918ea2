"""Levels of a search: nested groups, whose placements are placements of the problem, and moves of whole groups."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from envs.objectives import evaluator_of
from graphs.files.load import load_cluster, load_graph
from graphs.problem import Problem, objective_of
from graphs.runtime import runtime_of
from placers.annealing import Annealing
from placers.search.levels import COARSEST, RATIO, at_finest, levels_of
from placers.search.moves import Moves, MoveTables, level_at, move, random_placements
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_cluster


def problem_of(ops: int, seed: int = 0, devices: int = 3) -> Problem:
    """A random graph on toy devices."""
    return Problem(random_graph(ops, seed), toy_cluster(devices, memory=1e9))


@settings(deadline=None, max_examples=examples(25, 10))
@given(ops=some.integers(1, 300), seed=some.integers(0, 99))
def test_levels_have_a_quarter_of_the_units_each_and_are_nested(ops: int, seed: int) -> None:
    levels = levels_of(problem_of(ops, seed))
    counts = [len(level.units) for level in levels]
    assert counts == [ops // RATIO**number for number in range(len(levels))]
    assert ops // RATIO ** len(levels) < COARSEST
    for finer, coarser in itertools.pairwise(levels):
        pairs = np.unique(np.column_stack([finer.graph.units, coarser.graph.units]), axis=0)
        assert len(pairs) == len(finer.units), "a group is part of one group of the next level"


@settings(deadline=None, max_examples=examples(25, 10))
@given(ops=some.integers(60, 300), seed=some.integers(0, 99), objective=some.sampled_from(["step-time", "max-load"]))
def test_a_placement_of_a_level_costs_what_it_does_at_the_finest(ops: int, seed: int, objective: str) -> None:
    levels = levels_of(replace(problem_of(ops, seed), objective=objective_of(objective)))
    for number, level in enumerate(levels):
        placement = random_placements(level, np.random.default_rng(seed), 1)[0]
        there, here = (
            evaluator_of(problem).run_batch(each[None])
            for problem, each in ((level, placement), (levels[0], at_finest(levels, number, placement)))
        )
        assert there.step_seconds.tolist() == here.step_seconds.tolist()
        assert there.peak_bytes.tolist() == here.peak_bytes.tolist()


def test_ops_that_may_run_on_different_devices_share_no_group() -> None:
    cluster = toy_cluster(3)
    names = [(device.name,) for device in cluster.devices]
    graph = replace(random_graph(90, seed=0), devices=tuple(names[op % 3] for op in range(90)))
    levels = levels_of(Problem(graph, cluster))
    assert len(levels) > 1
    for level in levels:
        assert level.allowed is not None
        assert (level.allowed.sum(axis=1) == 1).all()


@settings(deadline=None, max_examples=examples(25, 10))
@given(ops=some.sampled_from([20, 70, 300]), seed=some.integers(0, 99), devices=some.integers(2, 4))
def test_a_move_takes_whole_groups_where_they_are_on_one_device(ops: int, seed: int, devices: int) -> None:
    levels = levels_of(problem_of(ops, seed, devices))
    tables, generator = MoveTables.of(levels[0], levels[1:]), np.random.default_rng(seed)
    for number, level in enumerate(levels):
        start = random_placements(level, generator, 1)[0]
        placement = at_finest(levels, number, start).astype(np.uint32)
        for _ in range(20):
            before = placement.copy()
            changed = move(tables, placement, number, generator)
            assert set(np.flatnonzero(placement != before)) <= set(tables.changed[:changed].tolist())
            assert (before[tables.changed[:changed]] == tables.before[:changed]).all()
            groups = level.graph.units[levels[0].units.first_op]
            assert all(len(set(placement[groups == group])) == 1 for group in range(len(level.units)))
            assert (placement != before).any()


def test_each_level_has_its_time_the_coarsest_first() -> None:
    levels = levels_of(problem_of(300))
    tables = MoveTables.of(levels[0], levels[1:])
    assert len(levels) == 3
    assert [level_at(tables, over) for over in (0.0, 0.33, 0.34, 0.66, 0.67, 1.0)] == [2, 2, 1, 1, 0, 0]
    assert level_at(MoveTables.of(levels[0]), 0.0) == 0


def test_moves_of_a_group_on_several_devices_take_the_part_on_one() -> None:
    levels = levels_of(problem_of(64, devices=2))
    moves, generator = Moves(levels[0], np.random.default_rng(0), levels[1:]), np.random.default_rng(1)
    for _ in range(200):
        placement = generator.integers(2, size=64)
        proposal = moves.propose(placement, 0.0)
        assert (proposal != placement).any()


@pytest.mark.parametrize("levels", [True, False])
def test_a_search_that_was_stopped_ends_where_it_would_have_ended(
    levels: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(200)
    whole = Annealing(levels=levels).place(problem, seed=3, budget=400)
    file = tmp_path / "search.npz"
    monkeypatch.setattr("placers.search.local_search.OPS_PER_CALL", 200 * 37)
    stopped = Annealing(levels=levels, file=str(file))
    calls = []

    class Requested:
        """Ctrl-C after some steps."""

        def __enter__(self) -> "Requested":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        @property
        def requested(self) -> bool:
            calls.append(1)
            return len(calls) >= 4

    with monkeypatch.context() as patched:
        patched.setattr("placers.search.search.Interrupts", Requested)
        with pytest.raises(KeyboardInterrupt):
            stopped.place(problem, seed=3, budget=400)
    again = stopped.place(problem, seed=3, budget=400)
    assert (again.plan, again.curve, again.simulations) == (whole.plan, whole.curve, 400)


def test_levels_change_what_is_found_only_where_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = problem_of(COARSEST * RATIO - 1), problem_of(200)
    assert len(levels_of(few)) == 1
    for problem, same in ((few, True), (many, False)):
        plans = [Annealing(levels=levels).place(problem, seed=1, budget=300).plan for levels in (True, False)]
        assert (plans[0] == plans[1]) == same
    monkeypatch.setattr("placers.annealing.levels_of", lambda problem: (problem,))
    assert Annealing().place(many, seed=1, budget=300).plan == plans[1]  # as without them


def test_where_seen_calls_cost_more_modules_are_moved_whole() -> None:
    """All calls of a module, which may be several, are of one node on some level; and on none where nothing is seen."""
    graph = load_graph("rnnlm:layers=20,steps=2,hidden=16,batch=2,vocabulary=16")
    looped = Problem(graph, load_cluster("p100:devices=2"), runtime=runtime_of("parallelize"))
    paths = np.array([call.module if call is not None else "" for call in graph.calls])
    cells = [np.flatnonzero(np.char.startswith(paths, f"layers.{layer}.")) for layer in range(20)]

    def whole(problem: Problem) -> list[bool]:
        return [all(len(set(level.graph.units[ops])) == 1 for ops in cells) for level in levels_of(problem)]

    assert any(whole(looped))
    assert not any(whole(replace(looped, runtime=runtime_of("parallelize:host=none"))))
    counts = [len(level.units) for level in levels_of(looped)]
    assert counts == sorted(counts, reverse=True)
    unknown = replace(problem_of(300), cluster=load_cluster("p100x2"))  # by which calls its ops are made
    assert len(levels_of(replace(unknown, runtime=runtime_of("parallelize")))) == len(levels_of(unknown))
