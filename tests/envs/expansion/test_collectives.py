"""All-reduces of gradients take what their formulas say, move the fewest bytes, and run next to the backward pass."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from envs.expansion.collectives import Sums, collective
from envs.expansion.draft import Draft
from envs.expansion.expanded import Role
from envs.expansion.layout import Layout
from envs.expansion.servers import by_server
from envs.expansion.shares import shared
from envs.plans.plan import Plan
from envs.plans.schedule import AllReduce
from envs.simulation.simulator import Simulator, simulate
from envs.timelines.timeline import Timeline
from graphs.cluster import Cluster, Device
from graphs.devices.topology import Level, hierarchical
from graphs.problem import Problem
from graphs.runtime import RUNTIMES, runtime_of
from tests.envs.expansion.pipelines import Pipeline, servers

KINDS: tuple[AllReduce, ...] = get_args(AllReduce)
GIGABYTE = 1e9
FAST = 150e9  # bytes/s inside a server
SLOW = 25e9 / 8  # bytes/s between servers


def data_parallel(
    replicas: int, *, kind: AllReduce = "ring", bucket_bytes: float = 1e18, layers: int = 1,
    forward: float = 1.0, backward: float = 1.0, weights: float = 0.0,
) -> tuple[Problem, Plan]:  # fmt: skip
    """Layers on replicas that split the batch, as one stage, on devices with one channel out of each."""
    pipeline = Pipeline(layers, forward=forward, backward=backward, weights=weights)
    plan = pipeline.plan(ranks=(tuple(range(layers)),), replicas=replicas)
    one_stage = (0,) * len(plan.devices)
    schedule = replace(plan.schedule, stages=one_stage, all_reduce=kind, bucket_bytes=bucket_bytes)
    problem = pipeline.problem(servers(replicas, latency=0.25, bandwidth=2.0, shared_out=True))
    return problem, replace(plan, schedule=schedule)


def moved_bytes(timeline: Timeline) -> float:
    assert timeline.expansion is not None
    return float(timeline.expansion.problem.graph.moved_bytes[timeline.transfers.output].sum())


# ---- what it takes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replicas", range(2, 17))
def test_a_ring_takes_as_long_as_its_closed_form(replicas: int) -> None:
    """2 (R - 1) steps, each of the latency and an R-th part of the gradient, after both passes."""
    problem, plan = data_parallel(replicas, weights=48.0)
    passes = (1 + 1) / replicas
    expected = passes + 2 * (replicas - 1) * (0.25 + 48 / (replicas * 2.0))
    assert simulate(problem, plan).step_seconds == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("replicas", [4, 8])
def test_direct_sends_take_as_long_as_a_ring_where_a_device_has_one_channel(replicas: int) -> None:
    problem, plan = data_parallel(replicas, kind="direct", weights=48.0)
    without_latency = replace(problem, cluster=servers(replicas, bandwidth=2.0, shared_out=True))
    expected = 2 / replicas + 2 * (replicas - 1) / replicas * 48 / 2.0
    assert simulate(without_latency, plan).step_seconds == pytest.approx(expected, abs=1e-9)
    assert simulate(problem, plan).step_seconds == pytest.approx(expected + 2 * (replicas - 1) * 0.25, abs=1e-9)


def test_with_a_channel_for_each_pair_direct_sends_are_faster() -> None:
    """All of a device's sends run at once: two rounds of one part each."""
    problem, plan = data_parallel(8, kind="direct", weights=48.0)
    timeline = simulate(replace(problem, cluster=servers(8, bandwidth=2.0)), plan)
    assert timeline.step_seconds == pytest.approx(2 / 8 + 2 * 48 / (8 * 2.0), abs=1e-9)


@pytest.mark.parametrize(("replicas", "seconds"), [(2, 32), (4, 42), (8, 47)])
def test_buckets_are_summed_up_one_after_another_beside_the_backward_pass(replicas: int, seconds: float) -> None:
    """Ten layers of 1 s forward and 2 s backward on each device: the first gradient is there at 12 s, and from then on
    the links are never idle."""
    problem, plan = data_parallel(
        replicas, layers=10, bucket_bytes=2.0, forward=replicas, backward=2 * replicas, weights=2.0
    )
    timeline = simulate(replace(problem, cluster=servers(replicas, bandwidth=1.0)), plan)
    assert seconds == 12 + 10 * 2 * (replicas - 1) * (2 / replicas)
    assert timeline.step_seconds == pytest.approx(seconds, abs=1e-9)


def test_one_bucket_waits_for_the_whole_backward_pass() -> None:
    problem, plan = data_parallel(2, layers=10, bucket_bytes=20.0, forward=2.0, backward=4.0, weights=2.0)
    timeline = simulate(replace(problem, cluster=servers(2, bandwidth=1.0)), plan)
    assert timeline.step_seconds == pytest.approx(30 + 2 * 10)
    assert timeline.expansion is not None
    assert (timeline.expansion.role == Role.SEND).sum() == 4


def test_megatron_sums_up_in_one_bucket() -> None:
    """Whatever a plan says, unless it is asked to overlap; other runtimes follow the plan."""
    at_once = data_parallel(2, layers=10, bucket_bytes=20.0, forward=2.0, backward=4.0, weights=2.0)[1]
    problem, plan = data_parallel(2, layers=10, bucket_bytes=2.0, forward=2.0, backward=4.0, weights=2.0)
    problem = replace(problem, cluster=servers(2, bandwidth=1.0))
    one_bucket = replace(problem, runtime=replace(problem.runtime, overlap=False))
    assert simulate(one_bucket, plan).step_seconds == simulate(problem, at_once).step_seconds == pytest.approx(50)
    assert simulate(problem, plan).step_seconds == pytest.approx(32)
    assert [name for name, runtime in RUNTIMES.items() if not runtime.overlap] == ["megatron"]
    assert runtime_of("megatron:overlap=true").overlap


def test_a_bucket_is_closed_once_it_is_full() -> None:
    """Gradients of 2 bytes in buckets of 5: three layers, three, three, and the first layer alone."""
    problem, plan = data_parallel(2, layers=10, bucket_bytes=5.0, weights=2.0)
    expansion = simulate(problem, plan).expansion
    assert expansion is not None
    sent = expansion.problem.graph.output_bytes[expansion.role == Role.SEND].reshape(4, -1)
    assert sent[:, 0].tolist() == [3, 3, 3, 1]
    names = [expansion.given.graph.names[op] for op in expansion.origin[expansion.role == Role.GATE]]
    assert names == [f"s{layer}.grad_weight" for layer in (7, 4, 1, 0) for _ in range(2)]


# ---- what it moves ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("replicas", [2, 3, 4, 8])
def test_data_parallelism_moves_the_fewest_bytes(replicas: int, kind: AllReduce) -> None:
    problem, plan = data_parallel(replicas, kind=kind, layers=3, bucket_bytes=30.0, weights=24.0)
    assert moved_bytes(simulate(problem, plan)) == pytest.approx(2 * (replicas - 1) * 3 * 24, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_data_parallelism_over_two_servers_of_two_moves_the_fewest_bytes(kind: AllReduce) -> None:
    problem, plan = data_parallel(4, kind=kind, weights=48.0)
    timeline = simulate(replace(problem, cluster=two_servers(2)), plan)
    assert moved_bytes(timeline) == 2 * 3 * 48
    across = timeline.transfers.source // 2 != timeline.transfers.destination // 2
    assert timeline.expansion is not None
    moved = timeline.expansion.problem.graph.moved_bytes[timeline.transfers.output][across].sum()
    assert moved == {"ring": 2 * 2 * 3 * 12, "direct": 2 * 8 * 12, "hierarchical": 2 * 48, "nccl": 2 * 48}[kind]


# ---- servers ---------------------------------------------------------------------------------------------------------


def two_servers(devices: int) -> Cluster:
    """Two servers with a network card each."""
    device = Device("toy", "gpu", 1.0, 1.0, 1e18)
    return hierarchical("two servers", device, (Level(2, SLOW, 0.0, "group"), Level(devices, FAST, 0.0, "device")))


def seconds_of_ring(cluster: Cluster, order: list[int]) -> float:
    """Of a gigabyte, in a ring of a given order of devices."""
    problem, plan = data_parallel(len(order), forward=0.0, backward=0.0, weights=GIGABYTE)
    draft = Draft(Layout(replace(problem, cluster=cluster), plan))
    members = np.array([order])
    sums = Sums(members, members, members * 0 - 1, np.array([0]), np.array([0]), np.array([GIGABYTE]))
    collective(draft, "ring", sums, sums.add(draft, Role.GATE)[:, 0])
    expansion = draft.build(shared)
    return Simulator(expansion.problem).timeline(expansion.placement).step_seconds


def test_a_ring_goes_from_server_to_server_once() -> None:
    """Of 16 cards in two servers, each link between servers carries 30 parts one after another, and not 240."""
    cluster, alternating = two_servers(8), [card for pair in zip(range(8), range(8, 16), strict=True) for card in pair]
    formula = 2 * 15 / 16 * GIGABYTE / SLOW
    assert formula == pytest.approx(0.6)
    assert seconds_of_ring(cluster, list(range(16))) == pytest.approx(formula, rel=2e-3)
    assert seconds_of_ring(cluster, alternating) == pytest.approx(8 * formula, rel=3e-3)
    for order in (list(range(16)), alternating):
        devices = (tuple(order),) * 4
        problem, plan = data_parallel(16, forward=0.0, backward=0.0, weights=GIGABYTE)
        planned = simulate(replace(problem, cluster=cluster), replace(plan, devices=devices))
        assert planned.step_seconds == pytest.approx(formula, rel=2e-3)
        by_parts = replace(plan, devices=devices, schedule=replace(plan.schedule, all_reduce="hierarchical"))
        faster = simulate(replace(problem, cluster=cluster), by_parts).step_seconds
        # each card passes 7 eighths on twice within its server; 8 rings of 2 sums share the link between servers
        assert faster == pytest.approx(2 * 7 / 8 * GIGABYTE / FAST + GIGABYTE / SLOW, rel=1e-9)
        assert faster < planned.step_seconds


def test_servers_are_what_the_slowest_links_join() -> None:
    cluster = two_servers(3)
    order, server = by_server(cluster, [5, 0, 3, 1], 1e6)
    assert order.tolist() == [0, 2, 1, 3]
    assert server.tolist() == [0, 0, 1, 1]
    order, server = by_server(servers(4), [3, 1, 2, 0], 1e6)
    assert order.tolist() == [0, 1, 2, 3]
    assert server.tolist() == [0, 0, 0, 0]


def test_servers_with_different_numbers_of_replicas_form_one_ring() -> None:
    problem, plan = data_parallel(3, forward=0.0, backward=0.0, weights=48.0)
    plan = replace(plan, devices=((0, 1, 3),) * 4)
    cluster = two_servers(3)
    ring, by_parts = (
        simulate(replace(problem, cluster=cluster), replace(plan, schedule=replace(plan.schedule, all_reduce=kind)))
        for kind in ("ring", "hierarchical")
    )
    assert ring.transfers.start.tolist() == by_parts.transfers.start.tolist()
    assert moved_bytes(by_parts) == 2 * 2 * 48
