"""Gradients of weights are added up where there is room for them, and updates wait for all of them."""

import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.expansion.buckets import gradient_bytes
from envs.expansion.expand import expand
from envs.expansion.expanded import Expansion, Role
from envs.expansion.layout import Layout
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, AllReduce, Schedule, Sharing, Update
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from graphs.files.load import load_graph
from graphs.op_graph import SPARSE, OpGraph, Phase
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.envs.expansion.random_plans import planned

TIED = 10.0  # bytes of the weight that the first and the last stage share


def sent(timeline: Timeline, source: int, destination: int) -> float:
    """Bytes that one device sends to another."""
    assert timeline.expansion is not None
    transfers = timeline.transfers
    these = (transfers.source == source) & (transfers.destination == destination)
    return float(timeline.expansion.problem.graph.moved_bytes[transfers.output[these]].sum())


# ---- one device ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("micro_batches", [2, 5])
def test_gradients_are_added_in_the_room_that_is_set_aside_for_them(micro_batches: int) -> None:
    chain = Pipeline(1, micro_batches, weights=100.0)
    timeline = simulate(chain.problem(optimizer="sgd"), chain.plan())
    assert timeline.peak_bytes.tolist() == [200]
    assert timeline.step_seconds == 2 * micro_batches


def test_the_update_waits_for_the_last_micro_batch() -> None:
    chain = Pipeline(2, 3, weights=100.0, update=0.5)
    expansion = simulate(chain.problem(), chain.plan()).expansion
    assert expansion is not None
    graph = expansion.problem.graph
    update = graph.names.index("s1.update")
    into = graph.edges[:, 1] == update
    assert [graph.names[op] for op in graph.edges[into, 0]] == [f"s1.grad_weight#{m}.0" for m in range(3)]
    assert graph.control[into].all()


# ---- sparse gradients ------------------------------------------------------------------------------------------------


def sparse(graph: OpGraph) -> OpGraph:
    """A chain whose weights are tables, of which each micro-batch reads 5 bytes."""
    kinds = tuple(
        f"{kind}{SPARSE}" if phase == 0 else kind for kind, phase in zip(graph.kinds, graph.phase, strict=True)
    )
    is_weight = np.array([kind.endswith(".grad_weight") for kind in graph.kinds])
    uses = graph.weight_uses[graph.phase[graph.weight_uses[:, 0]] == Phase.FORWARD]
    return replace(graph, kinds=kinds, weight_uses=uses, output_bytes=np.where(is_weight, 20.0, graph.output_bytes))


def test_sparse_gradients_of_all_micro_batches_are_held_until_the_update() -> None:
    chain = Pipeline(1, 4, weights=100.0, weight_gradient=1.0)
    problem = replace(chain.problem(optimizer="sgd"), graph=sparse(chain.graph()))
    assert problem.weight_state_bytes.tolist() == [100]
    assert simulate(problem, chain.plan()).peak_bytes.tolist() == [100 + 4 * 5]


def test_sparse_gradients_are_sent_to_each_replica_as_they_are() -> None:
    chain = Pipeline(1, 2, weights=100.0)
    problem = replace(chain.problem(servers(2, bandwidth=1.0)), graph=sparse(chain.graph()))
    timeline = simulate(problem, chain.plan(replicas=2))
    assert timeline.expansion is not None
    assert set(timeline.expansion.role) == {Role.WORK}
    assert (sent(timeline, 0, 1), sent(timeline, 1, 0)) == (10, 10)


# ---- weights that stages share ---------------------------------------------------------------------------------------


def tied(graph: OpGraph) -> OpGraph:
    """A chain whose last stage reads the weight of the first one too: the first one updates it for both."""
    last = sum(graph.phase == Phase.FORWARD) - 1
    number = graph.names.index
    return replace(
        graph,
        weights=np.array([TIED, *graph.weights[1:]]),
        weight_uses=np.append(graph.weight_uses, [[last, 0]], axis=0),
        edges=np.append(graph.edges, [[number(f"s{last}.grad_weight"), number("s0.grad_weight")]], axis=0),
        control=np.append(graph.control, False),
    )


@pytest.mark.parametrize(("sharing", "micro_batches"), [("split", 2), ("split", 3), ("turns", 6)])
@pytest.mark.parametrize("replicas", [(1, 1, 1), (2, 1, 1), (1, 2, 3), (2, 1, 3)])
@pytest.mark.parametrize("stages", [2, 3])
def test_the_sum_for_another_stage_is_sent_once(
    stages: int, replicas: tuple[int, ...], sharing: Sharing, micro_batches: int
) -> None:
    """To each replica that updates the weight, when all micro-batches and replicas have added to it."""
    chain = Pipeline(stages, micro_batches, weights=7.0)
    replicas = replicas[-stages:]
    problem = chain.problem(servers(sum(replicas), bandwidth=1.0))
    plan = chain.plan(replicas=replicas, sharing=sharing)
    timeline = simulate(replace(problem, graph=tied(chain.graph())), plan)
    assert timeline.expansion is not None
    first, last = range(replicas[0]), range(sum(replicas[:-1]), sum(replicas))
    for to in first:
        assert sorted(sent(timeline, source, to) for source in last)[-2:] == [0.0, TIED][-len(last) :]
    all_reduced = 2 * (replicas[0] - 1) * TIED + 2 * (replicas[-1] - 1) * (TIED + 7)
    all_reduced += 2 * (replicas[1] - 1) * 7 if stages == 3 else 0
    moved = timeline.expansion.problem.graph.moved_bytes[timeline.transfers.output].sum()
    assert moved == pytest.approx(all_reduced + replicas[0] * TIED, rel=1e-12)
    check_that_updates_wait(timeline.expansion)


def test_it_is_sent_after_the_last_micro_batch_and_held_by_its_reader_alone() -> None:
    """The last stage ends its last backward pass at 2 + 2 x 3; the gradient takes 10 s."""
    chain = Pipeline(2, 3, weights=7.0)
    problem = replace(chain.problem(servers(2, bandwidth=1.0)), graph=tied(chain.graph()))
    timeline = simulate(problem, chain.plan("gpipe"))
    last = timeline.transfers.finish.argmax()
    assert timeline.transfers.start[last] == 7
    assert timeline.step_seconds == 17
    assert timeline.peak_bytes.tolist() == [TIED + TIED, TIED + 7]


@pytest.mark.parametrize("sharing", ["split", "turns"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_the_tied_embedding_of_a_captured_model_crosses_twice(replicas: int, sharing: Sharing) -> None:
    """Its gradient, without that of the bias, to the first stage, and its new value back; on each replica."""
    graph = load_graph("bert:layers=2")
    problem = Problem(graph, servers(2 * replicas))
    stage = Plan.of_units(problem, np.arange(graph.num_units) * 2 // graph.num_units).placement
    devices = tuple(tuple(range(replicas * number, replicas * (number + 1))) for number in stage.tolist())
    schedule = Schedule(micro_batches=4, order="gpipe", sharing=sharing)
    timeline = simulate(problem, Plan(devices, schedule=schedule))
    assert timeline.expansion is not None
    table = graph.weights[graph.weight_uses[graph.names.index("tokens/embedding") == graph.weight_uses[:, 0], 1]]
    moved = timeline.expansion.problem.graph.moved_bytes[timeline.transfers.output]
    pairs = np.stack([timeline.transfers.source, timeline.transfers.destination], axis=1)
    there_and_back = [[n, replicas + n] for n in range(replicas)] + [[replicas + n, n] for n in range(replicas)]
    assert sorted(pairs[moved == table].tolist()) == sorted(there_and_back)


def test_the_gradients_of_a_captured_model_add_up_to_its_weights() -> None:
    """Biases next to a weight that is tied, and steps of a recurrent net: each weight is summed up once per stage."""
    for name in ("rnnlm:layers=2", "bert:layers=2"):
        graph = load_graph(name)
        problem = Problem(graph, servers(2))
        layout = Layout(problem, replace(Plan.of(np.zeros(len(graph), int)), devices=((0, 1),) * len(graph)))
        summed = graph.edges[layout.is_summed, 0]
        assert (
            gradient_bytes(layout, np.unique(summed)).sum() == graph.weights[np.unique(graph.weight_uses[:, 1])].sum()
        )


# ---- every update waits for every gradient ---------------------------------------------------------------------------


def check_that_updates_wait(expansion: Expansion) -> None:
    """Of its weights, from every micro-batch and replica that its update is for, and from other stages."""
    given, graph, schedule = expansion.given.graph, expansion.problem.graph, expansion.plan.schedule
    layout = Layout(expansion.given, expansion.plan)
    feeds = np.eye(len(graph), dtype=np.bool_)  # (ops, ops) whether the first is before the second, or is it
    for op in graph.topological_order:
        feeds[:, op] |= feeds[:, graph.edges[graph.edges[:, 1] == op, 0]].any(axis=1)
    is_work = expansion.role == Role.WORK
    carrying = given.edges[~given.control]  # a control edge brings no gradient, and orders copies one to one
    for update in np.flatnonzero(given.phase == Phase.UPDATE):
        into = carrying[carrying[:, 1] == update, 0]
        wanted, found = {int(update), *into[given.phase[into] == Phase.BACKWARD].tolist()}, set[int]()
        while wanted != found:  # gradients on their way to the update, through those of the same weights
            found = set(wanted)
            before = np.isin(carrying[:, 1], list(wanted))
            wanted |= {op for op in carrying[before, 0].tolist() if layout.is_weight_gradient[op]}
        if wanted == {int(update)}:
            continue
        for copy in np.flatnonzero(is_work & (expansion.origin == update)):
            made = is_work & np.isin(expansion.origin, list(wanted - {int(update)}))
            if schedule.update == "micro_batch":
                turns = layout.replicas[update] if schedule.sharing == "turns" else 1
                made &= expansion.micro_batch // turns == expansion.micro_batch[copy] // turns
            assert made.any()
            assert feeds[made, copy].all()


@settings(max_examples=examples(100, 15), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(1, 3), st.sampled_from(("split", "turns")),
    st.sampled_from(get_args(AllReduce)), st.sampled_from(("step", "micro_batch")),
    st.sampled_from((1.0, 30.0, 1e9)), st.booleans(), st.booleans(),
)  # fmt: skip
def test_every_update_waits_for_every_gradient_of_its_weights(
    replicas: list[int], micro_batches: int, sharing: Sharing, all_reduce: AllReduce, update: Update,
    bucket_bytes: float, is_tied: bool, is_sparse: bool,
) -> None:  # fmt: skip
    if sharing == "turns":
        micro_batches *= math.lcm(*replicas)
    chain = Pipeline(len(replicas), micro_batches, weights=20.0)
    graph = tied(chain.graph()) if is_tied and len(replicas) > 1 and update == "step" else chain.graph()
    order = AS_READY if update == "step" else "early_backward_b"
    plan = chain.plan(order, replicas=replicas, sharing=sharing, update=update)
    schedule = replace(plan.schedule, all_reduce=all_reduce, bucket_bytes=bucket_bytes)
    problem = Problem(sparse(graph) if is_sparse else graph, servers(sum(replicas)), "adam")
    check_that_updates_wait(expand(problem, replace(plan, schedule=schedule)))


@settings(max_examples=examples(100, 15), deadline=None, suppress_health_check=list(HealthCheck))
@given(planned())
def test_it_is_so_in_random_plans(case: tuple[Problem, Plan]) -> None:
    expansion = expand(*case)
    if case[0].graph.is_training:
        check_that_updates_wait(expansion)
