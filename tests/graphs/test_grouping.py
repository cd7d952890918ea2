"""Op groups: acyclic, as many as asked for, nothing lost, and their decisions mean the same for the ops."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.plan import Plan
from envs.simulation.simulator import simulate
from graphs.capture.training_step import training_step
from graphs.coarsening import coarsen
from graphs.foundation.errors import InputError
from graphs.grouping import PARCEL, expand, group_ops, tie_ops
from graphs.load import load_graph
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from tests.oracle.toys import random_graph, toy_cluster, toy_graph

FAMILIES = ("rnnlm:layers=2,steps=4,hidden=8", "inception:blocks=4,width=4,image=32", "transformer:layers=2,width=16")


@pytest.fixture(scope="module", params=FAMILIES)
def step(request: pytest.FixtureRequest) -> OpGraph:
    """A training step of each family."""
    return load_graph(request.param)


@pytest.mark.parametrize("groups", [1, 2, 7, 30, 100000])
def test_a_family_grouped(step: OpGraph, groups: int) -> None:
    check(step, groups)


@given(st.integers(1, 60), st.integers(0, 99), st.integers(1, 70))
def test_a_random_graph_grouped(ops: int, seed: int, groups: int) -> None:
    graph = random_graph(ops, seed)
    check(graph, groups)
    if len(graph.weights):
        check(training_step(graph), groups)


def check(graph: OpGraph, groups: int) -> None:
    coarse = group_ops(graph, groups)  # acyclic, or the graph would refuse to be made
    assert coarse.num_units == min(groups, graph.num_units)
    assert coarse.members is graph
    assert (tie_ops(graph, groups).units == coarse.units[coarse.member_of]).all()
    for key in ("flops", "bytes_accessed"):
        assert np.isclose(getattr(coarse, key).sum(), getattr(graph, key).sum(), rtol=1e-12)
    assert (coarse.weights == graph.weights).all()
    assert (coarse.phase[coarse.member_of] == graph.phase).all()
    held_by = {(int(coarse.member_of[op]), weight) for op, weight in graph.weight_uses.tolist()}
    assert {tuple(use) for use in coarse.weight_uses.tolist()} == held_by
    together = coarse.units[coarse.member_of]
    assert (together == together[first_of_unit(graph)]).all()
    consumed = np.isin(np.arange(len(graph)), outside(graph, coarse.member_of))
    assert np.isclose(coarse.output_bytes.sum(), graph.output_bytes[consumed].sum(), rtol=1e-12)


def first_of_unit(graph: OpGraph) -> np.ndarray:
    _, first, inverse = np.unique(graph.units, return_index=True, return_inverse=True)
    return np.asarray(first[inverse])


def outside(graph: OpGraph, member_of: np.ndarray) -> np.ndarray:
    """The ops with a consumer in another coarse op."""
    source, target = graph.edges[~graph.control].T
    return np.asarray(source[member_of[source] != member_of[target]])


def test_expanding_gives_every_member_its_groups_device(step: OpGraph) -> None:
    coarse = group_ops(step, 9)
    placement = np.arange(coarse.num_units)[coarse.units]
    fine = expand(coarse, placement)
    assert (fine == coarse.units[coarse.member_of]).all()
    assert (fine == fine[first_of_unit(step)]).all()
    with pytest.raises(InputError, match="is not grouped"):
        expand(step, fine)


def test_grouping_groups_keeps_the_finest_ops(step: OpGraph) -> None:
    once = group_ops(step, 20)
    twice = group_ops(once, 5)
    assert twice.num_units == 5
    assert twice.members is step
    assert len(twice.member_of) == len(step)
    assert np.isclose(twice.flops.sum(), step.flops.sum())
    unit_of_member = twice.units[twice.member_of]
    assert (unit_of_member == unit_of_member[first_of_unit(step)]).all()


def test_a_group_sends_its_consumers_only_what_they_read() -> None:
    graph = toy_graph(
        [9, 1, 1, 9, 9], [(0, 1), (0, 2), (1, 3), (2, 4)], output_bytes=[50, 2, 3, 1, 1], group=[0, 0, 0, -1, -1]
    )
    coarse = group_ops(graph, 3)
    assert coarse.names == ("a+2", "d", "e", "a+2.parcel1", "a+2.parcel2")
    assert coarse.kinds == ("toy", "toy", "toy", PARCEL, PARCEL)
    assert coarse.output_bytes.tolist() == [0, 0, 0, 2, 3]
    assert coarse.edges.tolist() == [[0, 3], [0, 4], [3, 1], [4, 2]]
    assert coarse.control.tolist() == [True, True, False, False]
    assert coarse.units.tolist() == [0, 1, 2, 0, 0]


def test_a_group_keeps_what_only_its_own_backward_pass_reads() -> None:
    step = group_ops(load_graph("transformer:layers=1,width=8,heads=2,sequence=4,batch=1,vocabulary=8"), 1)
    assert PARCEL not in step.kinds
    assert step.phase.tolist() == [Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE]
    assert step.mirror.tolist() == [-1, 0, 0]


def test_on_one_device_groups_need_the_time_and_nearly_the_memory_of_their_ops(step: OpGraph) -> None:
    fine = Problem(step, toy_cluster(1))
    coarse = Problem(group_ops(step, 12), toy_cluster(1))
    expected, found = (simulate(p, Plan.of_units(p, np.zeros(p.graph.num_units, int))) for p in (fine, coarse))
    assert np.isclose(found.step_seconds, expected.step_seconds)
    assert found.peak_bytes[0] <= 1.5 * expected.peak_bytes[0]


def test_units_that_can_only_run_interleaved_are_one() -> None:
    tangled = toy_graph([1, 1, 1, 1], [(0, 1), (1, 2), (2, 3)], group=[0, 1, 0, 1])
    assert group_ops(tangled, 4).num_units == 1


def test_there_is_at_least_one_group() -> None:
    with pytest.raises(InputError, match="cannot make 0 op groups"):
        group_ops(toy_graph([1], []), 0)


def test_groups_follow_what_is_sent() -> None:
    graph = toy_graph([1] * 6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], output_bytes=[9, 9, 1, 9, 9, 1])
    assert group_ops(graph, 2).units[group_ops(graph, 2).member_of].tolist() == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("count", [1, 3, 500])
@pytest.mark.parametrize("shape", ["star", "chain", "nothing", "free"])
def test_coarsening_ends_whatever_the_shape(shape: str, count: int) -> None:
    edges = {
        "star": [(0, i) for i in range(1, 400)],
        "chain": [(i, i + 1) for i in range(399)],
        "nothing": [],
        "free": [(i, i + 1) for i in range(399)],
    }[shape]
    size = np.zeros(400) if shape == "free" else np.ones(400)
    label = coarsen(np.array(edges, np.int64).reshape(-1, 2), np.ones(len(edges)), size, count)
    assert len(np.unique(label)) == min(count, 400)


def test_a_forward_pass_can_be_grouped() -> None:
    assert group_ops(load_graph("inception:blocks=4,width=4,image=32", training=False), 3).num_units == 3


def test_tied_ops_are_the_groups_that_would_be_merged() -> None:
    graph = load_graph("rnnlm:layers=2,steps=3,hidden=8,batch=2,vocabulary=16")
    tied, merged = tie_ops(graph, 7), group_ops(graph, 7)
    assert tied.names == graph.names
    assert tied.num_units == merged.num_units == 7
    assert tied.units.tolist() == merged.units[merged.member_of].tolist()
    assert tie_ops(tied, 3).num_units == 3


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("transfer_bytes", np.ones(2)),
        ("edge_bytes", np.ones(1)),
        ("measured_on", {"gpu": np.ones(2)}),
        ("devices", (("gpu",), ())),
    ],
)
def test_what_an_op_group_cannot_say_is_not_lost(key: str, value: Any) -> None:
    graph = replace(toy_graph([1, 1], [(0, 1)]), **{key: value})
    with pytest.raises(InputError, match=f"its {key} would be lost; tie them instead"):
        group_ops(graph, 1)
    assert len(getattr(tie_ops(graph, 1), key)) == len(value)
