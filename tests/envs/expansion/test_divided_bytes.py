"""What divided graphs move, how long that takes, and what devices hold, against closed forms."""

import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from envs.plans.plan import Plan
from envs.plans.schedule import AllReduce, Schedule
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from graphs.op_graph import OpGraph, Phase
from graphs.op_graph.subgraph import subgraph
from graphs.problem import Problem
from graphs.runtime import IDEAL
from tests.envs.expansion.divided_graphs import ITEM, convolutions, mlp
from tests.envs.expansion.test_collectives import two_servers
from tests.oracle.toys import toy_cluster

MESHES = ((2,), (3,), (8,), (2, 2), (2, 2, 2))


def moved_bytes(timeline: Timeline) -> float:
    return float(timeline.problem.graph.moved_bytes[timeline.transfers.output].sum())


def problem(graph: OpGraph, devices: int) -> Problem:
    return Problem(graph, toy_cluster(devices, memory=1e12, shared_out=True), optimizer="sgd")


def divided(graph: OpGraph, devices: int, split: tuple[tuple[str, ...], ...], mesh: tuple[int, ...] = ()) -> Timeline:
    plan = Plan((tuple(range(devices)),) * len(graph), split=split, mesh=mesh)
    return simulate(problem(graph, devices), plan)


def columns_and_rows(graph: OpGraph) -> tuple[tuple[str, ...], ...]:
    """Weights divided along their outputs and their inputs in turns, and what is between them (Megatron-LM)."""
    split = []
    for name in graph.names:
        layer = "".join(filter(str.isdigit, name))
        is_column = layer != "" and int(layer) % 2 == 0
        is_product = name.startswith("mm")
        split.append((("o" if is_column else "i" if is_product else "") if layer else "",))
    return tuple(split)


@pytest.mark.parametrize("mesh", MESHES)
def test_data_parallelism_is_a_split_by_the_batch(mesh: tuple[int, ...]) -> None:
    """Each of n devices gets a part of the gradients from n - 1 others, and sends its sum to them."""
    graph, devices = mlp([8, 16, 8], 24).graph, math.prod(mesh)
    timeline = divided(graph, devices, ((),) * len(graph), mesh)
    assert moved_bytes(timeline) == 2 * (devices - 1) * graph.weights.sum()
    replicas = Plan((tuple(range(devices)),) * len(graph), schedule=Schedule(all_reduce="direct"))
    by_replicas = simulate(problem(graph, devices), replicas)
    assert moved_bytes(by_replicas) == moved_bytes(timeline)
    assert timeline.held_bytes.tolist() == by_replicas.held_bytes.tolist()
    assert timeline.busy_seconds.sum() == pytest.approx(by_replicas.busy_seconds.sum())


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize(("per", "divided_by"), [("n", "o"), ("o", "n")])
def test_shards_of_what_is_normalised_over_add_up_their_statistics(
    mesh: tuple[int, ...], per: str, divided_by: str
) -> None:
    """In the forward and in the backward pass: 2 (n - 1) numbers per statistic, in each group of n that divides it."""
    samples, width = 48, 24
    graph = mlp([8, width], samples, per).graph
    undivided = "update" if divided_by == "n" else "x"  # which has no such index
    split = tuple(("" if undivided in name else divided_by,) * len(mesh) for name in graph.names)
    timeline = divided(graph, math.prod(mesh), split, mesh)
    statistics = 2 * (samples if per == "n" else width)
    gradients = graph.weights.sum() if divided_by == "n" else 0.0
    assert moved_bytes(timeline) == 2 * (math.prod(mesh) - 1) * (statistics * ITEM + gradients)


def test_each_group_of_shards_adds_up_the_statistics_of_its_rows() -> None:
    """Two groups of three divide the columns of their half of the rows."""
    samples, width = 48, 24
    graph = mlp([8, width], samples, "n").graph
    names = {"x": ("n", ""), "mm0.update": ("", "o")}
    timeline = divided(graph, 6, tuple(names.get(name, ("n", "o")) for name in graph.names), (2, 3))
    statistics = 2 * samples * 2 * (3 - 1) * ITEM
    assert moved_bytes(timeline) == statistics + 2 * (2 - 1) * graph.weights.sum()


@pytest.mark.parametrize("devices", [4, 8])
def test_scattering_and_gathering_take_as_long_as_a_ring(devices: int) -> None:
    """Where a device has one outgoing channel: 2 (n - 1) / n of the weights, one after the other."""
    net = mlp([16, 16], 16).graph
    graph = replace(net, flops=np.zeros(len(net)), bytes_accessed=np.zeros(len(net)))
    timeline = divided(graph, devices, ((),) * len(graph))
    assert timeline.step_seconds == pytest.approx(2 * (devices - 1) / devices * graph.weights.sum(), rel=1e-9)


@pytest.mark.parametrize(("devices", "columns", "batch"), [(2, 0.0671, 2.684), (4, 0.2013, 8.053), (8, 0.4698, 18.79)])
def test_columns_and_rows_in_turns_move_activations_alone(devices: int, columns: float, batch: float) -> None:
    """Of 5 layers of width 8192, two products per pass leave partial sums of 256 x 8192 numbers; given are GB."""
    graph, activation = mlp([8192] * 6, 256).graph, ITEM * 256 * 8192
    timeline = divided(graph, devices, columns_and_rows(graph))
    assert moved_bytes(timeline) == 4 * 2 * (devices - 1) * activation == pytest.approx(columns * 1e9, rel=1e-3)
    by_batch = divided(graph, devices, ((),) * len(graph))
    assert moved_bytes(by_batch) == pytest.approx(batch * 1e9, rel=1e-3)
    # each holds its part of the weights, and at the end of the backward pass of their gradients
    assert timeline.held_bytes.tolist() == [graph.weights.sum() / devices] * devices
    assert (timeline.peak_bytes >= 2 * graph.weights.sum() / devices).all()
    assert timeline.busy_seconds.tolist() == pytest.approx([graph.flops.sum() / devices] * devices, rel=0.01)


def test_a_halo_is_what_windows_reach_over_borders() -> None:
    """Of 3 x 3 windows over 8 rows on 4 devices, 3 borders, over which a row is read from each side."""
    net = convolutions(2, [4, 4, 4], 8)
    forward = subgraph(net.graph, net.graph.phase == Phase.FORWARD)
    timeline = divided(forward, 4, (("h",),) * len(forward))
    row = ITEM * 2 * 4 * 8  # images, channels, columns
    assert moved_bytes(timeline) == 2 * 3 * 2 * row  # of x and of what the first convolution makes


@pytest.mark.parametrize("devices", [2, 4])
def test_weights_that_are_stored_in_parts_are_gathered_where_they_are_read(devices: int) -> None:
    """Divided by the batch with updates divided by their own index: forward and backward passes gather weights."""
    graph = mlp([16, 16, 16], 8).graph
    split = tuple(("o",) if name.endswith("update") else () for name in graph.names)
    timeline = divided(graph, devices, split)
    first, second = graph.weights
    assert timeline.held_bytes.tolist() == [graph.weights.sum() / devices] * devices
    gathered = first + 2 * second  # the first layer has no gradient of its input
    assert moved_bytes(timeline) == (devices - 1) * (gathered + first + second)


def test_unequal_devices_take_shares_of_their_own() -> None:
    graph = mlp([16, 16], 12).graph
    plan = Plan(((0, 1),) * len(graph), split=((),) * len(graph), mesh=((2, 1),))
    timeline = simulate(problem(graph, 2), plan)
    forward = [op for op, name in enumerate(timeline.problem.graph.names) if name.startswith("mm0#")]
    assert timeline.problem.graph.flops[forward].tolist() == [graph.flops[1] * 2 / 3, graph.flops[1] / 3]


def test_a_split_of_micro_batches_holds_each_of_them_in_parts() -> None:
    """Two stages of two devices each, whose products are divided along columns and rows."""
    net = mlp([16, 16, 16, 16, 16], 16)
    graph = net.graph
    split = columns_and_rows(graph)
    layer = [int("".join(filter(str.isdigit, name)) or 0) for name in graph.names]
    devices = tuple((0, 1) if each < 2 else (2, 3) for each in layer)
    stages = tuple(int(each >= 2) for each in layer)
    for micro_batches in (1, 2, 4):
        for order in ("gpipe", "early_backward_a"):
            plan = Plan(devices, None, Schedule(micro_batches, stages, order), split)
            timeline = simulate(problem(graph, 4), plan)
            activation = ITEM * 16 * 16
            within = 2 * 2 * activation  # both stages end with a sum that both of their devices read
            forward = 2 * activation  # to each device of the next stage
            back = activation + 2 * activation  # added up by parts, of which both devices of the stage before read all
            assert moved_bytes(timeline) == within + forward + back, (micro_batches, order)
            assert timeline.held_bytes.tolist() == [graph.weights.sum() / 2 / 2] * 4


@pytest.mark.parametrize("all_reduce", get_args(AllReduce))
@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize("overlap", [True, False])
def test_a_split_by_the_batch_is_timed_as_replicas_are(
    all_reduce: AllReduce, micro_batches: int, overlap: bool
) -> None:
    """On four devices in two servers: the same ring, in the same buckets. Directly, gradients are sent one by one."""
    graph = mlp([16, 16, 16, 16], 32).graph
    given = Problem(graph, two_servers(2), optimizer="sgd", runtime=replace(IDEAL, overlap=overlap))
    schedule = Schedule(micro_batches, all_reduce=all_reduce, bucket_bytes=ITEM * 16 * 16 * 2)
    replicas, split = (
        simulate(given, Plan(((0, 1, 2, 3),) * len(graph), None, schedule, split=each))
        for each in ((), ((),) * len(graph))
    )
    assert moved_bytes(split) == moved_bytes(replicas) == 2 * 3 * graph.weights.sum()
    assert split.peak_bytes.max() <= replicas.peak_bytes.max() * (1 + 1e-9) or all_reduce == "direct"
    if all_reduce != "direct":
        assert split.step_seconds == pytest.approx(replicas.step_seconds, rel=1e-12)
        in_one = replace(schedule, bucket_bytes=float(graph.weights.sum()))
        alone = simulate(given, Plan(((0, 1, 2, 3),) * len(graph), None, in_one, split=((),) * len(graph)))
        assert (alone.step_seconds == split.step_seconds) is not overlap
