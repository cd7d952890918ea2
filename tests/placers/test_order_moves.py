"""Moves of the order change ops of one unit by the same, say what they changed, and are taken back exactly."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some

from envs.simulation.simulator import Simulator
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from placers.search.order_moves import LARGEST, SMALLEST, OrderTables, move_order, take_back_order
from tests.oracle.strategies import graphs
from tests.oracle.toys import toy_cluster, toy_graph


def training_step() -> OpGraph:
    """Ops a to f of one unit: forward, a gradient that another waits for, two of weights, an update, a refresh."""
    graph = toy_graph([1] * 6, [(0, 1), (1, 2), (0, 3), (2, 4), (3, 4), (4, 5)], group=[0] * 6)
    return replace(graph, phase=np.array([Phase.FORWARD, *[Phase.BACKWARD] * 3, Phase.UPDATE, Phase.REFRESH]))


def test_parts_are_ops_of_one_kind() -> None:
    problem = Problem(training_step(), toy_cluster(2))
    tables = OrderTables.of(problem, np.arange(6.0))
    assert tables.parts.tolist() == [0, 4]
    parts = [tables.ops[begin:end].tolist() for begin, end in zip(tables.offsets[:-1], tables.offsets[1:], strict=True)]
    assert parts == [[0], [1], [2, 3], [4, 5]]


@settings(deadline=None)
@given(data=some.data(), ops=some.integers(1, 12), seed=some.integers(0, 99))
def test_a_move_shifts_ops_of_one_unit_and_is_taken_back(data: some.DataObject, ops: int, seed: int) -> None:
    problem = Problem(data.draw(graphs(ops)), toy_cluster(2))
    blueprint, _ = Simulator(problem).for_compiled_code()
    first = np.random.default_rng(seed).random(ops)
    records, tables, generator = blueprint.ops, OrderTables.of(problem, first), np.random.default_rng(seed)
    assert sorted(tables.ops.tolist()) == list(range(ops))
    records["priority"] = first
    for _ in range(20):
        before = records["priority"].copy()
        count = move_order(tables, records.view(np.recarray), generator)
        changed = tables.changed[:count]
        assert len(set(changed.tolist())) == count > 0
        assert len(set(problem.graph.units[changed].tolist())) == 1
        others = np.setdiff1d(np.arange(ops), changed)
        assert (records["priority"][others] == before[others]).all()
        shift = np.abs(records["priority"][changed] - before[changed])
        spread = np.ptp(first)
        assert np.allclose(shift, shift[0], rtol=1e-9, atol=1e-12)
        assert LARGEST * SMALLEST * spread * 0.999 <= shift[0] <= LARGEST * spread * 1.001 or spread == 0.0
        if generator.random() < 0.5:
            take_back_order(tables, records.view(np.recarray), count)
            assert (records["priority"] == before).all()
