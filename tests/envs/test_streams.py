"""Devices that run strictly in the order of issue, and copies that occupy both of their ends, or side streams."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

import placelab
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from evaluation.records.identity import problem_digits
from graphs.foundation.errors import InputError
from graphs.host import Host
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from graphs.runtime import IDEAL, PROGRAM, runtime_of
from placers.exact import Exact
from placers.search.evaluations import rule_of
from tests.oracle.strategies import Case, cases
from tests.oracle.test_oracle import brief
from tests.oracle.toys import toy_cluster, toy_graph

LOOP = runtime_of("parallelize:host=none,copies=barrier,defer=false")
SIDE = LOOP.with_knobs(copies="side")
MODEL, CLUSTER = "rnnlm:layers=1,steps=2,hidden=8,batch=4", "p100:devices=2"


def test_a_copy_waits_for_what_was_issued_before_and_is_waited_for() -> None:
    """A copy of 3 s, before its reader c: otherwise it would start at 3, and d, which does not read it, at 8."""
    graph = toy_graph([3, 5, 3, 3], [(0, 2), (1, 3)], output_bytes=[3, 0, 0, 0])
    problem = Problem(graph, toy_cluster(2))
    assert simulate(problem, Plan.of([0, 0, 1, 0], order=[0, 1, 2, 3])).start.tolist() == [0, 3, 6, 8]
    found = simulate(replace(problem, runtime=LOOP), Plan.of([0, 0, 1, 0]))
    assert found.start.tolist() == [0, 3, 11, 11]
    assert (found.transfers.start.tolist(), found.transfers.finish.tolist()) == ([8], [11])


def test_a_copy_in_a_side_stream_holds_up_its_reader_alone() -> None:
    """It starts when b has ended, which was issued before it: d does not wait for it, and c does, which reads it."""
    graph = toy_graph([3, 5, 3, 3, 4], [(0, 2), (1, 3)], output_bytes=[3, 0, 0, 0, 0])
    found = simulate(Problem(graph, toy_cluster(2), runtime=SIDE), Plan.of([0, 0, 1, 0, 1]))
    assert found.start.tolist() == [0, 3, 11, 8, 14]
    assert (found.transfers.start.tolist(), found.transfers.finish.tolist()) == ([8], [11])


def test_copies_of_a_side_stream_run_in_the_order_of_issue() -> None:
    """That of b before c reads it, 4 s from 2 on, and then that of a before d reads it; to gpu:2 there is another."""
    graph = toy_graph([1, 1, 2, 2, 1], [(1, 2), (0, 3), (0, 4)], output_bytes=[1, 4, 0, 0, 0])
    found = simulate(Problem(graph, toy_cluster(3), runtime=SIDE), Plan.of([0, 0, 1, 1, 2]))
    assert found.start.tolist() == [0, 1, 6, 8, 3]
    moved = found.transfers
    assert sorted(zip(moved.start.tolist(), moved.destination.tolist(), strict=True)) == [(2, 1), (2, 2), (6, 1)]


def test_an_op_waits_for_one_that_was_issued_before_it() -> None:
    """The op c has what it reads at once, and b, which gpu:0 was given first, waits for a."""
    graph = toy_graph([4, 1, 2], [(0, 1)], output_bytes=[1, 0, 0])
    problem = Problem(graph, toy_cluster(2))
    assert simulate(problem, Plan.of([1, 0, 0], order=[0, 1, 2])).start.tolist() == [0, 5, 0]
    assert simulate(replace(problem, runtime=LOOP), Plan.of([1, 0, 0])).start.tolist() == [0, 5, 6]


def test_a_gradient_is_copied_after_its_node_and_before_gradients_of_weights_that_wait() -> None:
    """A copy of as many bytes as that of f's output, 1 s; the gradient of g's weight takes 3."""
    phase = np.array([Phase.FORWARD, Phase.FORWARD, Phase.BACKWARD, Phase.BACKWARD, Phase.BACKWARD])
    edges = np.array([[0, 1], [1, 2], [2, 3], [2, 4]])
    kinds = ("any", "aten.mm", "aten.mm.grad", "aten.mm.grad_weight", "any.grad")
    graph = OpGraph(
        "chain", ("f", "g", "g.grad", "g.grad_weight", "f.grad"), kinds, np.array([1.0, 1, 2, 3, 1]),
        np.zeros(5), np.array([1.0, 0, 4, 0, 0]), edges, phase=phase, mirror=np.array([-1, -1, 1, 1, 0]),
    )  # fmt: skip
    problem = Problem(graph, toy_cluster(2), "none", runtime=LOOP)
    assert simulate(problem, Plan.of([0, 1, 1, 1, 0])).start.tolist() == [0, 2, 3, 5, 9]
    waiting = replace(problem, runtime=LOOP.with_knobs(defer="true"))
    assert simulate(waiting, Plan.of([0, 1, 1, 1, 0])).start.tolist() == [0, 2, 3, 6, 6]
    aside = replace(problem, runtime=SIDE)
    assert simulate(aside, Plan.of([0, 1, 1, 1, 0])).start.tolist() == [0, 2, 3, 5, 9]
    both = replace(problem, runtime=SIDE.with_knobs(defer="true"))
    assert simulate(both, Plan.of([0, 1, 1, 1, 0])).start.tolist() == [0, 2, 3, 5, 6]


def test_a_gradient_waits_if_it_takes_longer_than_that_costs_the_host() -> None:
    """Of 2 s and 5, where waiting costs 1 s in either pass; without a host both wait."""
    phase = np.array([Phase.FORWARD] * 2 + [Phase.BACKWARD] * 2)
    graph = OpGraph(
        "two", ("f", "g", "g.grad_weight", "f.grad_weight"), ("aten.mm",) * 2 + ("aten.mm.grad_weight",) * 2,
        np.array([1.0, 1, 2, 5]), np.zeros(4), np.zeros(4), np.array([[0, 1], [1, 2], [2, 3]]), phase=phase,
        mirror=np.array([-1, -1, 1, 0]),
    )  # fmt: skip
    problem = Problem(graph, toy_cluster(2), op_seconds=graph.flops[:, None].repeat(2, axis=1), runtime=LOOP)
    assert not problem.deferred.any()
    waiting = LOOP.with_knobs(defer="true")
    assert replace(problem, runtime=waiting).deferred.tolist() == [False, False, True, True]
    slow = replace(waiting, host=replace(Host.uniform(0.0), deferral=1.0))
    assert replace(problem, runtime=slow).deferred.tolist() == [False, False, False, True]
    assert simulate(replace(problem, runtime=slow), Plan.of([0, 1, 1, 0])).start.tolist() == [1, 2, 3, 5]


def test_gradients_of_one_tensor_are_summed_up_where_they_are_made() -> None:
    """Of f's output, which g and h read on gpu:1: one copy of 1 s, after both; the first, of 8 bytes, holds the sum."""
    kinds = ("any", "any", "any", "any.grad", "any.grad", "any.grad")
    phase = np.array([Phase.FORWARD] * 3 + [Phase.BACKWARD] * 3)
    edges = np.array([[0, 1], [0, 2], [1, 4], [2, 3], [3, 5], [4, 5]])
    graph = OpGraph(
        "fork", ("f", "g", "h", "h.grad", "g.grad", "f.grad"), kinds, np.ones(6), np.zeros(6),
        np.array([1.0, 0, 0, 8, 8, 0]), edges, phase=phase, mirror=np.array([-1, -1, -1, 2, 1, 0]),
    )  # fmt: skip
    timeline = simulate(Problem(graph, toy_cluster(2), "none", runtime=LOOP), Plan.of([0, 1, 1, 1, 1, 0]))
    assert timeline.start.tolist() == [0, 2, 3, 4, 5, 7]
    assert (timeline.transfers.start.tolist(), timeline.transfers.finish.tolist()) == ([1, 6], [2, 7])
    times, held = timeline.memory_curve(1)
    assert dict(zip(times.tolist(), held.tolist(), strict=True))[5.0] == 16  # while g.grad is computed, h.grad is there
    assert held[np.searchsorted(times, 6.0)] == 8
    assert timeline.peak_bytes.tolist() == [1, 16]


def test_only_the_loop_has_side_streams() -> None:
    assert runtime_of("parallelize:copies=side") == runtime_of("parallelize")
    assert runtime_of("parallelize:copies=barrier,defer=false").name == "parallelize:copies=barrier,defer=false"
    with pytest.raises(InputError, match="expected barrier or side"):
        runtime_of("parallelize:copies=none")
    with pytest.raises(InputError, match="'run:copies=side': unknown knob 'copies'"):
        runtime_of("run:copies=side")


def test_only_the_loop_can_defer() -> None:
    assert runtime_of("parallelize:defer=true") == runtime_of("parallelize")
    assert runtime_of("parallelize:defer=false").name == "parallelize:defer=false"
    with pytest.raises(InputError, match="expected true or false"):
        runtime_of("parallelize:defer=maybe")
    with pytest.raises(InputError, match="'run:defer=true': unknown knob 'defer'"):
        runtime_of("run:defer=true")


def test_a_host_issues_copies_with_their_readers() -> None:
    """An op costs its thread 2 s; the copy of 1 s starts when its reader has been issued."""
    graph = toy_graph([1, 1], [(0, 1)], output_bytes=[1, 0])
    problem = Problem(graph, toy_cluster(2), runtime=replace(LOOP, host=Host.uniform(2.0)))
    assert Simulator(problem).timeline([0, 1]).start.tolist() == [2, 7]  # after a, its copy and b have been issued


@brief
@given(cases(streams=True))
def test_all_ops_run_in_the_order_of_issue(case: Case) -> None:
    """And no copy is under way while either of its ends runs an op, unless it has a side stream."""
    timeline = Simulator(case.problem).timeline(case.placements[0])
    busy = [(timeline.placement[op], timeline.start[op], timeline.finish[op]) for op in range(len(timeline.start))]
    for source, there, begin, end in zip(
        timeline.transfers.source, timeline.transfers.destination, timeline.transfers.start, timeline.transfers.finish,
        strict=True,
    ):  # fmt: skip
        assert case.problem.runtime.copies == "side" or not any(
            device in (source, there) and start < end and finish > begin and finish > start
            for device, start, finish in busy
            if begin < end
        )


def test_a_peak_is_right_where_copies_begin_in_another_order_than_that_of_issue() -> None:
    """Five chains of 40 ops, issued one after another, run side by side, and each op is read on one more device."""
    chains, length = 5, 40
    rng = np.random.default_rng(0)
    seconds, sizes = 1000 * rng.integers(1, 4, chains * length), rng.integers(1, 1000, 2 * chains * length)
    edges = [(op, op + 2) for op in range(0, 2 * chains * length, 2) if (op + 2) % (2 * length)]
    edges += [(op, op + 1) for op in range(0, 2 * chains * length, 2)]
    flops = np.stack([seconds, np.zeros(len(seconds))], axis=1).ravel()
    names = tuple(f"op{i}" for i in range(len(flops)))
    sent = sizes.astype(np.float64)
    graph = OpGraph("chains", names, ("any",) * len(flops), flops, np.zeros(len(flops)), sent, np.array(edges))
    placement = np.array([[1 + op // length, 0] for op in range(chains * length)]).ravel()
    timeline = Simulator(Problem(graph, toy_cluster(chains + 1), "none", runtime=SIDE)).timeline(placement)
    begins = timeline.transfers.start[np.argsort(timeline.transfers.producer)]
    assert (np.diff(begins) < 0).sum() == chains - 1
    assert timeline.peak_bytes.tolist() == [timeline.memory_curve(device)[1].max() for device in range(chains + 1)]


def test_the_order_of_a_plan_is_not_followed() -> None:
    graph = toy_graph([1, 2, 3], [])
    problem = Problem(graph, toy_cluster(1), runtime=LOOP)
    given_order = simulate(problem, Plan.of([0, 0, 0], order=[2, 1, 0]))
    assert given_order.start.tolist() == [0, 1, 3]
    assert given_order.order == PROGRAM.name
    batch = Simulator(problem).run_ordered([[0, 0, 0]], np.array([[2.0, 1.0, 0.0]]))
    assert batch.step_seconds.tolist() == [6.0]


def test_searches_change_no_order_that_nothing_reads() -> None:
    problem = Problem(toy_graph([1, 2, 3], []), toy_cluster(2), runtime=LOOP)
    assert len(Simulator(problem).priorities) == len(rule_of(Simulator(problem))) == 0
    assert len(rule_of(Simulator(replace(problem, runtime=IDEAL)))) == 3


def test_verbs_plan_for_the_loop() -> None:
    placed = placelab.place(MODEL, cluster=CLUSTER, placer="round_robin", runtime="parallelize")
    assert placed.problem.runtime == runtime_of("parallelize")
    ideal = placelab.simulate(MODEL, placed.plan, cluster=CLUSTER, runtime="ideal")
    assert placed.record.step_seconds > ideal.record.step_seconds
    assert placed.record.order == PROGRAM.name
    runtimes = (IDEAL, LOOP, SIDE, placed.problem.runtime)
    digits = {problem_digits(replace(placed.problem, runtime=each)) for each in runtimes}
    assert len(digits) == 4


def test_replicas_are_processes() -> None:
    """Whose sums of gradients are no copies of PyTorch."""
    placed = placelab.place(MODEL, cluster=CLUSTER, placer="data_parallel", runtime="parallelize")
    runtime = placed.timeline.problem.runtime
    assert not runtime.streams
    assert runtime.host is not None
    assert runtime.host.per_device


def test_exact_refuses_streams() -> None:
    problem = Problem(toy_graph([1, 1], []), toy_cluster(2), runtime=LOOP)
    with pytest.raises(InputError, match="exact: what it proves knows no host"):
        Exact().place(problem, budget=10)
