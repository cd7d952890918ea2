"""All-reduces as NCCL does them: as long as those that were measured, and simulated as the closed form says."""

import csv
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from envs.expansion.nccl import PROTOCOLS, all_reduce_seconds
from envs.objectives.latency import Latency
from envs.pipelines.grain.expand_stages import expand_stages
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.simulator import Simulator, simulate
from graphs.cluster import Cluster
from graphs.devices.catalogue import device, link
from graphs.devices.topology import Level, hierarchical
from graphs.files.load import load_cluster, load_graph
from graphs.host import Host
from graphs.op_graph import Phase
from graphs.problem import Problem
from graphs.runtime import IDEAL, default_runtime
from placers.data_parallel import DataParallel
from tests.envs.expansion.divided_graphs import ITEM, mlp
from tests.envs.expansion.test_collectives import data_parallel
from tests.envs.expansion.test_divided_bytes import columns_and_rows, moved_bytes

TRANSFORMER = "transformer:layers=24,width=1024,heads=16,batch=64"
MEASURED = Path(os.environ.get("PLACELAB_MEASURED", "measured")) / "collectives.csv"
MIB = 2.0**20
CLUSTERS = (
    "dgx_a100:servers=1,devices=2",
    "dgx_a100:servers=1,devices=8",
    "dgx_a100:servers=2,devices=8",
    "dgx_a100:servers=4,devices=8",
    "dgx_h100",
    "v100:devices=3",
    "v100:devices=4",
    "v100:devices=6",
    "v100_servers:servers=2,devices=4",
    "p100_switches",
    "p100x4",
    "home_fleet",
    "mixed:servers=rtx3090x2/rtx3060,link=pcie4x8,network=10gbe",
)


def measured_on(gpu: str, count: int) -> Cluster:
    """What vTrain's tables were measured on: A100 behind NVSwitch, or the first V100 of a DGX-1."""
    return load_cluster(f"dgx_a100:servers=1,devices={count}" if gpu == "A100" else f"v100:devices={count}")


# ---- what was measured -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(not MEASURED.exists(), reason="set PLACELAB_MEASURED to the folder of measured all-reduces")
def test_all_reduces_within_a_server_are_within_a_fifth_of_the_measured_ones() -> None:
    rows = list(csv.DictReader(MEASURED.read_text().splitlines()))
    assert {(row["gpu"], int(row["gpus"])) for row in rows} >= {(g, n) for g in ("A100", "V100") for n in range(2, 9)}
    for row in rows:
        count, size, seconds = int(row["gpus"]), float(row["bytes"]), float(row["seconds"])
        said = all_reduce_seconds(measured_on(row["gpu"], count), range(count), size)
        assert said == pytest.approx(seconds, rel=0.2), row


@pytest.mark.parametrize(
    ("gpu", "count", "mebibytes", "seconds"),
    [
        ("A100", 2, 1, 45.1e-6),
        ("A100", 2, 1024, 5.4534e-3),
        ("A100", 4, 16, 177.8e-6),
        ("A100", 8, 1, 92.15e-6),
        ("A100", 8, 4, 94.03e-6),
        ("A100", 8, 16, 231e-6),
        ("A100", 8, 1024, 8.1964e-3),
        ("V100", 2, 1, 69.87e-6),
        ("V100", 2, 1024, 47.617e-3),
        ("V100", 4, 64, 1.2018e-3),
        ("V100", 8, 4, 151.2e-6),
        ("V100", 8, 1024, 13.983e-3),
    ],
)
def test_some_of_them_from_the_published_tables(gpu: str, count: int, mebibytes: int, seconds: float) -> None:
    """VTrain, `trace/a100/AR_GPU8_1M_1024M_LUT` and its like."""
    said = all_reduce_seconds(measured_on(gpu, count), range(count), mebibytes * MIB)
    assert said == pytest.approx(seconds, rel=0.2)


@pytest.mark.parametrize(("mebibytes", "seconds"), [(1, 86e-6), (16, 0.28e-3), (1024, 9.2e-3)])
def test_between_two_servers_they_are_within_a_fifth_of_those_published(mebibytes: int, seconds: float) -> None:
    """By nccl-tests between two servers of 8 A100, each with a network card of 200 Gbit/s."""
    said = all_reduce_seconds(load_cluster("dgx_a100:servers=2,devices=8"), range(16), mebibytes * MIB)
    assert said == pytest.approx(seconds, rel=0.2)


@pytest.mark.parametrize(("count", "rings"), [(2, 1), (3, 2), (4, 4), (5, 2), (6, 2), (7, 4), (8, 6)])
def test_rings_of_a_dgx_1_pass_as_many_nvlinks_as_enter_and_leave_each_gpu(count: int, rings: int) -> None:
    """As `nvidia-smi topo -m` joins its GPUs: among five, GPU 4 has two links, both to GPU 0; among six one more, to 5.

    A ring that enters it from GPU 5 leaves it to GPU 0, so that two pass. PCIe next to NVLinks is not used.
    """
    nvlinks = link("nvlink2")  # six of a GPU
    level = Level(count, nvlinks.bandwidth / 6 * rings, nvlinks.latency_seconds, "device")
    alike, preset = hierarchical("DGX-1", device("v100"), (level,)), load_cluster("v100:devices=8")
    for size in (MIB, 64 * MIB):
        said = all_reduce_seconds(preset, range(count), size)
        assert said == pytest.approx(all_reduce_seconds(alike, range(count), size), rel=1e-12)
        assert said == all_reduce_seconds(load_cluster(f"v100:devices={count}"), range(count), size)


def test_slow_links_within_a_server_carry_what_no_others_join() -> None:
    """Two servers of three GPUs, of which NVLink joins two: what the third needs goes over its two PCIe links."""
    server, place = np.divmod(np.arange(6), 3)
    bandwidth = np.where(server[:, None] == server, 12e9, 10e9)
    bandwidth[(server[:, None] == server) & (place[:, None] + place == 1)] = 48e9
    devices = load_cluster("p100x8").devices[:6]
    cluster = Cluster("pairs and one", devices, np.full((6, 6), 1e-5), bandwidth, np.arange(36).reshape(6, 6))
    assert all_reduce_seconds(cluster, range(6), 1e9) == pytest.approx(34e-6 + 1e9 * 4 / 3 / 24e9 / 0.87, rel=1e-12)


# ---- the formula -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", range(2, 9))
@pytest.mark.parametrize("servers", [1, 2, 4])
def test_the_closed_form(servers: int, devices: int) -> None:
    """Up and down a chain in each server and a tree between them, or the bytes of the busier kind of links."""
    cluster = load_cluster(f"dgx_a100:servers={servers},devices={devices}")
    nvlinks, card, depth = link("nvlink3"), link("infiniband200"), {1: 0, 2: 1, 4: 2}[servers]
    latency = 2 * ((devices - 1) * nvlinks.latency_seconds + depth * card.latency_seconds)
    for size in (1e3, MIB, 1e8, 1e9):
        within = 2 * (devices - 1) / devices * size / 235e9  # what NCCL reckons with of 300 GB/s
        across = 2 * (servers - 1) / servers * size / (devices * card.bandwidth)
        expected = min(
            each.start + max(each.step * latency, max(within, across) / each.share) for each in PROTOCOLS.values()
        )
        assert all_reduce_seconds(cluster, range(len(cluster)), size) == pytest.approx(expected, rel=1e-12)


def test_what_shares_a_card_waits_for_it() -> None:
    """Of four devices in each of two servers, a card for each against one for all."""
    one, each = load_cluster("v100_servers:servers=2,devices=4,gbps=200"), load_cluster("dgx_a100:servers=2,devices=4")
    shared, own = (all_reduce_seconds(cluster, range(8), 1e9) for cluster in (one, each))
    assert shared == pytest.approx(34e-6 + 1e9 / 25e9 / 0.87, rel=1e-12)
    assert own == pytest.approx(34e-6 + 1e9 / (4 * 25e9) / 0.87, rel=1e-12)


def test_where_links_take_no_time_it_takes_none() -> None:
    cluster = Cluster.uniform("ideal", device("v100"), 4, latency=0.0, bandwidth=np.inf, shared_out=False)
    assert all_reduce_seconds(cluster, range(4), 1e9) == 0.0


# ---- simulated -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("size", [1e3, MIB, 1e8])
def test_alone_it_takes_what_the_closed_form_says(name: str, size: float) -> None:
    cluster = load_cluster(name)
    problem, plan = data_parallel(len(cluster), kind="nccl", forward=0.0, backward=0.0, weights=size)
    timeline = simulate(replace(problem, cluster=cluster), plan)
    assert timeline.step_seconds == pytest.approx(all_reduce_seconds(cluster, range(len(cluster)), size), rel=1e-12)
    assert timeline.finish.max() == timeline.step_seconds
    assert len(set(timeline.transfers.channel.tolist())) == len(timeline.transfers.channel)


def test_two_all_reduces_take_turns_on_their_links() -> None:
    cluster = load_cluster("dgx_a100:servers=2,devices=4")
    problem, plan = data_parallel(8, kind="nccl", layers=2, bucket_bytes=1.0, forward=0.0, backward=0.0, weights=1e8)
    alone = all_reduce_seconds(cluster, range(8), 1e8)
    assert simulate(replace(problem, cluster=cluster), plan).step_seconds == pytest.approx(2 * alone, rel=1e-12)


def test_it_begins_once_the_last_member_is_ready_and_ends_for_all_at_once() -> None:
    """Of four replicas one is three times as slow as the others: a quarter of three ops of 3 s."""
    problem, plan = data_parallel(4, kind="nccl", weights=1e8)
    seconds = np.tile([1.0, 1.0, 1.0, 3.0], (len(problem.graph), 1))
    seconds[problem.graph.phase == Phase.UPDATE] = 0.0
    cluster = load_cluster("dgx_a100:servers=1,devices=4")
    cluster = cluster.with_each_device(launch_seconds=0.0)
    timeline = simulate(replace(problem, cluster=cluster, op_seconds=seconds), plan)
    assert timeline.transfers.start.tolist() == [2.25] * 4
    assert timeline.step_seconds == pytest.approx(2.25 + all_reduce_seconds(cluster, range(4), 1e8), rel=1e-12)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_partial_sums_of_shards_take_it_too_in_a_step_and_in_its_first_pass(devices: int) -> None:
    """Of five products, divided along columns and rows in turns, two leave partial sums in each pass."""
    net = mlp([64] * 6, 256).graph
    free = np.zeros(len(net))
    graph, cluster = (
        replace(net, flops=free, bytes_accessed=free),
        load_cluster(f"dgx_a100:servers=1,devices={devices}"),
    )
    problem = Problem(graph, cluster.with_each_device(launch_seconds=0.0), "sgd")
    everywhere, schedule = (tuple(range(devices)),) * len(graph), Schedule(all_reduce="nccl")
    plan = Plan(everywhere, schedule=schedule, split=columns_and_rows(graph))
    alone = all_reduce_seconds(cluster, range(devices), ITEM * 256 * 64)
    assert simulate(problem, plan).step_seconds == pytest.approx(4 * alone, rel=1e-12)
    by_stages = expand_stages(problem, plan)
    of_stages = Simulator(by_stages.problem, order=by_stages.order).timeline(by_stages.placement)
    assert of_stages.step_seconds == pytest.approx(4 * alone, rel=1e-12)
    assert Latency().of_plan(problem, plan) == pytest.approx(2 * alone, rel=1e-12)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_processes_that_come_apart_wait_for_the_last_in_each_collective(devices: int) -> None:
    """By a constant for two of them, and as much more for each doubling: in sums of shards and in sums of gradients."""
    net = mlp([64] * 6, 256).graph
    free, apart = np.zeros(len(net)), 1e-3
    cluster = load_cluster(f"dgx_a100:servers=1,devices={devices}")
    runtime = replace(IDEAL, host=Host(0.0, 0.0, 0.0, 0.0, per_device=True, apart=apart))
    problem = Problem(replace(net, flops=free, bytes_accessed=free), cluster, "sgd", runtime=runtime)
    everywhere, schedule = (tuple(range(devices)),) * len(net), Schedule(all_reduce="nccl")
    divided = Plan(everywhere, schedule=schedule, split=columns_and_rows(net))
    late = {2: 1, 4: 2, 8: 3}[devices] * apart
    alone = all_reduce_seconds(cluster, range(devices), ITEM * 256 * 64)
    assert simulate(problem, divided).step_seconds == pytest.approx(4 * (alone + late), rel=1e-12)
    gradients, replicas = data_parallel(devices, kind="nccl", forward=0.0, backward=0.0, weights=1e8)
    found = simulate(replace(gradients, cluster=cluster, runtime=runtime), replicas).step_seconds
    assert found == pytest.approx(all_reduce_seconds(cluster, range(devices), 1e8) + late, rel=1e-12)


@pytest.mark.parametrize("width", [64, 8192])
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_what_is_scattered_or_gathered_takes_half_of_an_all_reduce(devices: int, width: int) -> None:
    """Of a layer that divides the batch, and stores its weights in parts: these are gathered for the forward pass, and
    their gradients scattered. Each has half the steps, and half the bytes, of an all-reduce."""
    net = mlp([width, width], 64).graph
    free = np.zeros(len(net))
    cluster = load_cluster(f"dgx_a100:servers=1,devices={devices}").with_each_device(launch_seconds=0.0)
    problem = Problem(replace(net, flops=free, bytes_accessed=free), cluster, "sgd")
    split = tuple(("o",) if name.endswith("update") else () for name in net.names)
    plan = Plan((tuple(range(devices)),) * len(net), schedule=Schedule(all_reduce="nccl"), split=split)
    latency, part = (devices - 1) * link("nvlink3").latency_seconds, (devices - 1) / devices * net.weights.sum()
    half = min(each.start + max(each.step * latency, part / 235e9 / each.share) for each in PROTOCOLS.values())
    timeline = simulate(problem, plan)
    assert moved_bytes(timeline) == 2 * (devices - 1) * net.weights.sum()
    assert timeline.step_seconds == pytest.approx(2 * half, rel=1e-12)


def test_between_servers_sums_cost_data_parallelism_nothing_that_a_plan_could_save() -> None:
    """So no plan is far faster than data parallelism by better sums, as if it added up along a ring: 37% longer."""
    graph, cluster = load_graph(TRANSFORMER, with_law=True), load_cluster("dgx_a100:servers=2")
    problem = Problem(graph, cluster, "adam", runtime=default_runtime(graph, cluster))

    def step(of: Problem, kind: str = "") -> float:
        return simulate(of, DataParallel(all_reduce=kind).place(of).plan).step_seconds

    free = step(replace(problem, cluster=cluster.with_free_links()))
    assert step(problem) == step(problem, "nccl") == pytest.approx(free, rel=0.001)
    assert step(problem, "ring") / free == pytest.approx(1.37, abs=0.01)
