"""What a plan makes longer: calls that it sees, and modules that it enters, by a closed form and by the plain rule."""

from dataclasses import replace

import numpy as np
import pytest

from envs.simulation.simulator import Simulator
from graphs.files.load import load_cluster, load_graph
from graphs.host import Host
from graphs.op_graph import Bools, Call, Ints, OpGraph
from graphs.problem import Problem
from graphs.runtime import runtime_of
from graphs.transforms.module_calls import ENTERING, ModuleCalls

MODELS = "rnnlm:layers=2,steps=3,hidden=16,batch=2,vocabulary=16", "transformer:layers=2,width=16,heads=2,batch=2"


def looped(graph: OpGraph, *, defer: bool) -> Problem:
    host = replace(Host.uniform(1.0), placed=1.0)
    runtime = replace(runtime_of(f"parallelize:defer={str(defer).lower()}"), host=host)
    return Problem(graph, load_cluster("p100:devices=2"), runtime=runtime)


def by_rule(calls: ModuleCalls, placement: Ints, timed: Bools, seen_ops: Ints) -> Ints:
    """(ops,) how often a plan looks at each forward op, or at a module that it begins, if it takes time."""
    mixed = calls.mixed(placement, seen_ops)
    found = np.where((calls.of_op >= 0) & mixed[calls.of_op] & timed, 1, 0)
    is_entered = ~mixed & mixed[calls.outer]
    first = calls.first(timed)[is_entered]
    found[first] = np.where(timed[first], ENTERING * calls.times[is_entered], 0)
    return found


@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_the_simulator_counts_what_the_plain_rule_does(model: str, defer: bool) -> None:
    problem = looped(load_graph(model), defer=defer)
    graph, simulator, random = problem.graph, Simulator(problem), np.random.default_rng(0)
    calls, timed = ModuleCalls.of(graph), simulator.costs.op_seconds.max(axis=1) > 0
    waits = replace(problem, op_seconds=simulator.costs.op_seconds).deferred
    seen_ops, counts = graph.mirror[np.flatnonzero(waits)], set[int]()
    outermost = np.array([path.split(".")[:2] == ["layers", "0"] for path in calls.paths])
    for share in (0.0, 0.02, 0.2, 0.5):
        per_op = np.where(outermost[calls.of_op] & (calls.of_op >= 0), 1, 0)
        per_unit = np.zeros(graph.num_units, np.int64)
        np.maximum.at(per_unit, graph.units, per_op)
        per_unit ^= random.random(graph.num_units) < share
        blueprint, run = simulator.for_compiled_code()
        assert simulator.seconds(per_unit[None])[0] > 0
        seen = by_rule(calls, per_unit[graph.units], timed, seen_ops)
        np.testing.assert_array_equal(run.seen_seconds * timed, seen * blueprint.placed)
        counts.add(int(seen.sum()))
    assert len(counts) > 1 or defer


def calls_of(*modules: str) -> ModuleCalls:
    """Of a chain of ops, each in a call of a module's code."""
    nothing = np.zeros(len(modules))
    edges = np.column_stack([np.arange(len(modules) - 1), np.arange(1, len(modules))])
    names = tuple(f"op{number}" for number in range(len(modules)))
    calls = tuple(Call(module, "call", number) for number, module in enumerate(modules))
    return ModuleCalls.of(OpGraph("chain", names, ("any",) * len(names), nothing, nothing, nothing, edges, calls=calls))


def seen(modules: list[str], placement: list[int], seen_ops: list[int] | None = None) -> list[int]:
    timed = np.ones(len(modules), np.bool_)
    found = by_rule(calls_of(*modules), np.array(placement), timed, np.array(seen_ops or [], np.int64))
    return [int(each) for each in found]


def test_a_module_on_one_device_is_entered_once_and_calls_of_another_are_seen() -> None:
    modules = ["", "a", "a.x", "a", "", "a", "a.x", "a"]
    assert seen(modules, [0, 1, 1, 1, 0, 0, 0, 0]) == [1, ENTERING, 0, 0, 1, ENTERING, 0, 0]
    assert seen(modules, [0, 1, 0, 1, 0, 0, 0, 0]) == [1, 1, 1, 1, 1, ENTERING, 0, 0]
    assert seen(modules, [0] * 8, [6]) == [1, ENTERING, 0, 0, 1, 1, 1, 1]


def test_a_part_on_one_device_of_a_module_on_several_is_entered() -> None:
    modules = ["a", "a.b", "a.b.x", "a.b", "a.c", "a.c"]
    assert seen(modules, [0, 1, 1, 1, 0, 0]) == [1, ENTERING, 0, 0, 1, 1]  # of few calls each is seen
    assert seen(modules, [1] * 6) == [ENTERING, 0, 0, 0, 0, 0]


def test_calls_of_a_module_that_follow_one_another_are_as_many_as_those_of_its_part() -> None:
    assert seen(["a.x", "a", "a.x", "a", "b"], [1, 1, 1, 1, 0]) == [2 * ENTERING, 0, 0, 0, 1]
    # a list of modules is not called itself, and one of which none has several calls may be in a row
    assert seen(["l.0", "l.0", "l.1", "l.1", "b"], [1, 1, 1, 1, 0]) == [2 * ENTERING, 0, 0, 0, 1]
    assert seen(["l.0", "l.1", "l.2", "b"], [1, 1, 1, 0]) == [ENTERING, 0, 0, 1]
