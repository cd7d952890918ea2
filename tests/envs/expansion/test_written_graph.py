"""Graphs of expansions, whose names and kinds are written late, against op graphs of the same values."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from envs.expansion.expand import expand
from envs.expansion.expanded import Role
from envs.expansion.layout import Layout
from envs.expansion.written_graph import WrittenGraph, written
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from graphs.foundation.errors import InputError
from graphs.op_graph import RESIDENT, OpGraph
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.expansion.random_plans import planned
from tests.oracle.toys import toy_cluster, toy_graph

DERIVED = (
    "units", "has_sparse_gradient", "edge_output", "moved_bytes", "occupied_bytes", "topological_order",
    "carried_bytes",
)  # fmt: skip


def check_equal(found: OpGraph, expected: OpGraph) -> None:
    """The same values of the same types, to the bit, and nothing that can be written."""
    for key in (*(each.name for each in fields(OpGraph)), *DERIVED):
        one, other = getattr(found, key), getattr(expected, key)
        if isinstance(other, np.ndarray):
            assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes()), key
            assert not one.flags.writeable, key
        else:
            assert one == other, key
    assert (len(found), found.num_units, found.fingerprint) == (len(expected), expected.num_units, expected.fingerprint)


def as_op_graph(graph: OpGraph) -> OpGraph:
    """An op graph of the same values, checked."""
    return OpGraph(**{each.name: getattr(graph, each.name) for each in fields(OpGraph)})


@settings(max_examples=examples(200, 20), deadline=None, suppress_health_check=list(HealthCheck))
@given(planned())
def test_it_is_the_op_graph_of_its_values(case: tuple[Problem, Plan]) -> None:
    graph = expand(*case).problem.graph
    assert isinstance(graph, WrittenGraph)
    assert not {"names", "kinds", "precisions"} & vars(graph).keys()  # nothing has read them
    check_equal(graph, as_op_graph(graph))


def chain() -> tuple[Problem, Plan]:
    """A chain of three ops, the first two of which are on both devices, and two micro-batches."""
    graph = toy_graph([1, 2, 3], [(0, 1), (1, 2)])
    return Problem(graph, toy_cluster(2)), Plan(
        ((0, 1), (0, 1), (1,)), schedule=Schedule(micro_batches=2, stages=(0, 0, 1))
    )


def test_it_may_be_changed_and_pickled_as_an_op_graph() -> None:
    graph = expand(*chain()).problem.graph
    check_equal(replace(graph, flops=2 * graph.flops), replace(as_op_graph(graph), flops=2 * graph.flops))
    assert pickle.loads(pickle.dumps(graph)).fingerprint == graph.fingerprint


def test_copies_multiply_in_the_precision_of_their_op() -> None:
    problem, plan = chain()
    given = replace(problem.graph, precisions=("", "bf16", "tf32"))
    graph = expand(replace(problem, graph=given), plan).problem.graph
    by_op = {name.partition("#")[0]: precision for name, precision in zip(graph.names, graph.precisions, strict=True)}
    assert [by_op[name] for name in given.names] == ["", "bf16", "tf32"]


def test_names_that_copies_would_have_too_are_refused() -> None:
    problem, plan = chain()
    plan = replace(plan, schedule=replace(plan.schedule, micro_batches=1))  # so that the last op has one copy
    with pytest.raises(InputError, match="two ops are called"):
        expand(Problem(replace(problem.graph, names=("a", "b", "a#0.0")), problem.cluster), plan)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("flops", np.nan, "flops of 'a' is nan"),
        ("output_bytes", -1.0, "output_bytes of 'a' is -1.0"),
        ("bytes_accessed", 1e19, "bytes_accessed of 'a' is 1e"),
        ("edge_bytes", -1.0, "edge_bytes of 'edge 0' is -1.0"),
        ("edges", (1, 0), "is cyclic"),
    ],
)
def test_what_an_op_graph_refuses_is_refused(key: str, value: Any, message: str) -> None:
    graph = toy_graph([1, 2], [(0, 1), (0, 1)])
    layout = Layout(Problem(graph, toy_cluster(1)), Plan(((0,), (0,))))
    keys = (
        "flops", "bytes_accessed", "output_bytes", "edges", "control", "edge_bytes", "weights", "weight_uses",
        "frozen", "phase", "transfer_bytes", *RESIDENT,
    )  # fmt: skip
    values = {each: np.array(getattr(graph, each)) for each in keys} | {"edge_bytes": np.full(2, np.nan)}
    whole = written(layout, np.arange(2), np.full(2, int(Role.WORK)), dict(values))
    check_equal(whole, as_op_graph(whole))
    values[key][0] = value
    with pytest.raises(InputError, match=message):
        written(layout, np.arange(2), np.full(2, int(Role.WORK)), values)
