"""States of weights that replicas hold in parts: what is sent, what is held and when it is gathered, in closed form."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from envs.expansion.expanded import Role
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, AllReduce, Schedule, Zero
from envs.simulation.simulator import simulate
from evaluation.tables.step_summary import largest_held
from graphs.cluster import Cluster, Device
from graphs.devices.topology import Level, hierarchical
from graphs.files.load import load_graph
from graphs.foundation.errors import InputError
from graphs.op_graph import SPARSE, Phase
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.envs.expansion.test_collectives import two_servers
from tests.envs.expansion.test_divided_bytes import moved_bytes

REPLICAS = 4
MODEL = "transformer:layers=3,width=32,heads=2,sequence=8,vocabulary=48,batch=16"
ZEROS = get_args(Zero)


def trained(optimizer: str = "adam", cluster: Cluster | None = None) -> Problem:
    return Problem(load_graph(MODEL), cluster or servers(REPLICAS, bandwidth=1e6), optimizer)


def replicas(problem: Problem, micro_batches: int, zero: Zero, kind: AllReduce = "ring", group: int = 0) -> Plan:
    order = "early_backward_a" if micro_batches > 1 else AS_READY
    devices = (tuple(range(len(problem.cluster))),) * len(problem.graph)
    return Plan(devices, PROGRAM, Schedule(micro_batches, order=order, all_reduce=kind, zero=zero, shard_group=group))


def in_blocks(problem: Problem) -> float:
    """Bytes of the weights that the blocks of layers read."""
    graph = problem.graph
    op, weight = graph.weight_uses.T
    is_inside = np.array([graph.names[each].startswith("layers.") for each in op.tolist()])
    return float(graph.weights[np.unique(weight[is_inside])].sum())


# ---- bytes that are sent ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", get_args(AllReduce))
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_replicas_send_what_the_paper_says(micro_batches: int, kind: AllReduce) -> None:
    """Rajbhandari et al. 2020, section 7: 2 W up to stage 2, 3 W of stage 3; here for each micro-batch from 2 on.

    What is outside of blocks stays from the forward to the backward pass, and is gathered once for both.
    """
    problem = trained(cluster=two_servers(2))
    weights, others = float(problem.graph.weights.sum()), REPLICAS - 1
    blocks, again = in_blocks(problem), micro_batches
    expected = [2 * weights, 2 * weights, (again + 1) * weights, again * (2 * weights + blocks)]
    for zero in ZEROS:
        sent = moved_bytes(simulate(problem, replicas(problem, micro_batches, zero, kind)))
        assert sent == pytest.approx(others * expected[zero])


@pytest.mark.parametrize("kind", get_args(AllReduce))
@pytest.mark.parametrize("group", [2, 3, 6])
def test_groups_scatter_and_gather_by_themselves_and_add_up_parts_once(group: int, kind: AllReduce) -> None:
    """Of 6 replicas in g groups of k, scatters and gathers send (k - 1) W in each group, of each micro-batch.

    Sums over groups send 2 (g - 1) W / k for each of k parts, once in a step. A group of all is the same as none.
    """
    problem = trained(cluster=two_servers(3))
    problem = replace(problem, graph=load_graph(MODEL.replace("batch=16", "batch=12")))
    weights, groups, again = float(problem.graph.weights.sum()), 6 // group, 2
    inside, across = groups * (group - 1), 2 * (groups - 1) * weights
    expected = [2 * weights, (again + 1) * weights, again * (2 * weights + in_blocks(problem))]
    for zero in ZEROS[1:]:
        sent = moved_bytes(simulate(problem, replicas(problem, again, zero, kind, group)))
        assert sent == pytest.approx(inside * expected[zero - 1] + across)


# ---- bytes that are held ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("optimizer", "state"), [("sgd", 0), ("momentum", 1), ("adam", 2)])
def test_replicas_hold_what_the_paper_says(optimizer: str, state: int) -> None:
    """Rajbhandari et al. 2020, figure 1: of n replicas an n-th of the state, of gradients, and of weights."""
    problem = trained(optimizer)
    weights, part = float(problem.graph.weights.sum()), 1 / REPLICAS
    expected = [2 + state, 2 + state * part, 1 + (1 + state) * part, (2 + state) * part]
    for zero in ZEROS:
        timeline = simulate(problem, replicas(problem, 1, zero))
        others = timeline.given_bytes(grows=True) + timeline.given_bytes(grows=False)
        assert (timeline.static_bytes - others).tolist() == pytest.approx([expected[zero] * weights] * REPLICAS)


@pytest.mark.parametrize("group", [2, 4])
def test_each_group_holds_all_parts(group: int) -> None:
    """As of so many replicas; 4 are all."""
    problem = trained()
    weights = float(problem.graph.weights.sum())
    for zero in ZEROS[1:]:
        timeline = simulate(problem, replicas(problem, 1, zero, group=group))
        others = timeline.given_bytes(grows=True) + timeline.given_bytes(grows=False)
        whole = (2.0, 1.0, 0.0)[zero - 1]
        held = whole + (4 - whole) / group
        assert (timeline.static_bytes - others).tolist() == pytest.approx([held * weights] * REPLICAS)


@pytest.mark.parametrize("micro_batches", [1, 2, 3])
def test_two_blocks_are_gathered_at_a_time(micro_batches: int) -> None:
    """Of 8 blocks with Adam on 2 replicas: parts of all weights and states, two blocks gathered, a gradient in whole.

    Parts of gradients of several micro-batches are held until the last one is there.
    """
    blocks, weight = 8, 40.0
    problem, plan = chain(blocks, micro_batches, 3, weight, bandwidth=1e9, kind="nccl")
    gradients = blocks * weight / 2 if micro_batches > 1 else 0.0
    peaks = simulate(problem, plan).peak_bytes.tolist()
    assert peaks == [(1 + 2) * blocks * weight / 2 + gradients + 2 * weight + weight] * 2


def test_gradients_in_parts_are_not_held_whole() -> None:
    blocks, weight = 8, 40.0
    peaks = [
        simulate(*chain(blocks, 2, zero, weight, bandwidth=1e9, kind="nccl")).peak_bytes.tolist() for zero in ZEROS[:3]
    ]
    weights = blocks * weight
    one = weight  # the gradient whose part is being added up
    assert peaks == [[4 * weights] * 2, [(2 + 2 / 2) * weights] * 2, [(1 + 3 / 2) * weights + one] * 2]


def test_what_is_gathered_is_said_by_the_names_of_the_model() -> None:
    problem = trained()
    timeline = simulate(problem, replicas(problem, 2, 3))
    assert timeline.expansion is not None
    said = {timeline.expansion.held_by(op) for op in np.flatnonzero(timeline.expansion.role == Role.GATE).tolist()}
    names = [each.rpartition(", gathered weights of micro-batch ") for each in said if ", " in each]
    assert {name for name, _, _ in names} <= set(problem.graph.names)
    assert {number for _, _, number in names} == {"0", "1"}
    assert any(held.kind == "gathered weights" for held in largest_held(timeline, 0))


# ---- when weights are gathered ---------------------------------------------------------------------------------------


def chain(
    layers: int, micro_batches: int, zero: Zero, weight: float, *, bandwidth: float, update: float = 0.0,
    kind: AllReduce = "ring",
) -> tuple[Problem, Plan]:  # fmt: skip
    """Blocks of a second, forward and backward, of each micro-batch on each of two replicas."""
    made = Pipeline(layers, micro_batches, forward=2.0, backward=2.0, weights=weight, update=update)
    graph = made.graph()
    graph = replace(graph, names=tuple(f"blocks.{name[1]}/{name}" for name in graph.names))
    order = "early_backward_a" if micro_batches > 1 else AS_READY
    schedule = Schedule(micro_batches, order=order, zero=zero, all_reduce=kind)
    problem = Problem(graph, servers(2, bandwidth=bandwidth), optimizer="adam")
    return problem, Plan(((0, 1),) * len(graph), PROGRAM, schedule)


def test_gathers_run_two_blocks_ahead() -> None:
    """Blocks of 40 bytes, of which a half is sent in half a second.

        link      g0 g1     g2        g2 g1   s2 g0 s1 s0
        device       F0---F1---F2---B2---B1---B0---         g gathers a block, s scatters its gradients

    The second block is gathered while the first one runs, the third once the first one is free, and so on.
    """
    problem, plan = chain(3, 1, 3, 40.0, bandwidth=40.0)
    timeline = simulate(problem, plan)
    assert timeline.expansion is not None
    graph, origin = problem.graph, timeline.expansion.origin
    took = (timeline.finish > timeline.start) & (timeline.placement == 0)
    starts = {graph.names[origin[op]].partition("/")[2]: timeline.start[op] for op in np.flatnonzero(took).tolist()}
    assert starts == {"s0": 0.5, "s1": 1.5, "s2": 2.5, "s2.grad": 3.5, "s1.grad": 4.5, "s0.grad": 5.5}
    sent = timeline.transfers
    mine = sent.source == 0
    assert sorted(sent.start[mine].tolist()) == [0.0, 0.5, 1.5, 2.5, 3.5, 4.5, 5.0, 5.5, 6.5]
    assert timeline.step_seconds == 7.0


def test_replicas_update_a_part_each_and_gather_it_then() -> None:
    """Of 40 bytes half is sent in half a second, for the sum and after the update, which takes half of its second."""
    seconds = [simulate(*chain(1, 1, zero, 40.0, bandwidth=40.0, update=1.0)).step_seconds for zero in ZEROS]
    assert seconds == [2 + 2 * 0.5 + 1, 2 + 0.5 + 0.5 + 0.5, 2 + 0.5 + 0.5 + 0.5, 0.5 + 2 + 0.5 + 0.5]


def test_groups_of_a_server_add_up_over_the_network_once() -> None:
    """A block of 40 bytes on two servers of two cards, joined by a network card each of 10 bytes a second.

    gather 0.5, forward and backward 0.5 each, scatter 0.5, sum over servers 4, update 0.5: a card sends its half of a
    part, 10 bytes, in each of two steps, and the network card those of both, one after the other.
    """
    device = Device("toy", "gpu", 1.0, 1.0, 1e18)
    cluster = hierarchical("toys", device, (Level(2, 10.0, 0.0, "group"), Level(2, 40.0, 0.0, "device")))
    problem, plan = chain(1, 1, 3, 40.0, bandwidth=1.0, update=1.0)
    problem = replace(problem, cluster=cluster)
    plan = replace(plan, devices=((0, 1, 2, 3),) * len(problem.graph))
    grouped = replace(plan, schedule=replace(plan.schedule, shard_group=2))
    assert simulate(problem, grouped).step_seconds == 0.5 + 0.5 + 0.5 + 0.5 + 2 * 2 + 0.5
    assert simulate(problem, plan).step_seconds > simulate(problem, grouped).step_seconds


def test_a_plan_in_whole_parts_is_the_same_on_one_replica() -> None:
    problem = trained()
    single = [
        simulate(problem, Plan(((0,),) * len(problem.graph), PROGRAM, Schedule(2, zero=zero, order="gpipe")))
        for zero in ZEROS
    ]
    assert len({each.step_seconds for each in single}) == len({each.peak_bytes.max() for each in single}) == 1


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_what_cannot_be_combined_is_refused() -> None:
    problem = trained()
    devices = ((0, 1, 2, 3),) * len(problem.graph)
    for schedule, reason in [
        (Schedule(4, sharing="turns", zero=1), "replicas that take turns"),
        (Schedule(2, update="micro_batch", order="gpipe", zero=2), "an update after each micro-batch"),
        (Schedule(2, zero=3), "name an order of passes"),
    ]:
        with pytest.raises(InputError, match=reason):
            simulate(problem, Plan(devices, schedule=schedule))
    with pytest.raises(InputError, match="split of ops"):
        simulate(problem, Plan(devices, schedule=Schedule(zero=1), split=((),) * len(problem.graph)))
    with pytest.raises(InputError, match="name the optimizer"):
        simulate(replace(problem, optimizer="none"), Plan(devices, schedule=Schedule(zero=1)))
    rows = tuple(
        f"{kind}{SPARSE}" if phase == Phase.FORWARD else kind
        for kind, phase in zip(problem.graph.kinds, problem.graph.phase.tolist(), strict=True)
    )
    with pytest.raises(InputError, match="sparse=False"):
        simulate(replace(problem, graph=replace(problem.graph, kinds=rows)), Plan(devices, schedule=Schedule(zero=1)))
    with pytest.raises(InputError, match="4 replicas of stage 0 cannot be divided into groups of 3"):
        simulate(problem, Plan(devices, schedule=Schedule(zero=1, shard_group=3)))
    tied = replace(problem, graph=load_graph(f"{MODEL},tied=true"))
    is_first = tied.graph.units < tied.graph.num_units // 2
    uneven = tuple((0, 1) if each else (2,) for each in is_first.tolist())
    with pytest.raises(InputError, match=r"share a weight, which the replicas of their stages .* in 2 and 1 parts"):
        simulate(tied, Plan(uneven, schedule=Schedule(2, order="gpipe", zero=1)))
    with pytest.raises(InputError, match="zero 4"):
        Schedule(zero=4)  # type: ignore[arg-type]
    for group, zero, reason in ((1, 1, "at least 2 replicas"), (-2, 1, "at least 2 replicas"), (2, 0, "say zero 1, 2")):
        with pytest.raises(InputError, match=reason):
            Schedule(zero=zero, shard_group=group)  # type: ignore[arg-type]
