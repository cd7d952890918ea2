"""One rank's step: collectives are ops of a stream of their own, timed by links and by the size of their groups."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

import placelab
from envs.costs.communication_times import seconds_of
from envs.expansion.nccl import all_reduce_seconds
from graphs.capture.one_rank_step import rank_graph
from graphs.cluster import Cluster, Device
from graphs.files.load import load_cluster
from graphs.formats.collectives import communication_kind, ranks_of
from graphs.formats.graph_file import load_graph_file, save_graph
from graphs.foundation.errors import InputError

RANKS, WIDTH = 4, 64
LATENCY, BANDWIDTH, FLOPS = 1e-3, 1e6, 1e8
PRODUCT = 2 * WIDTH**3 / FLOPS  # seconds
GATHERED = 4.0 * WIDTH**2  # bytes


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    """A process group in which nothing is sent."""
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield
    dist.destroy_process_group()


def group_name() -> str:
    assert dist.group.WORLD is not None
    return dist.group.WORLD.group_name


def ring(steps: int, part: float) -> float:
    return steps * (LATENCY + part / BANDWIDTH)


def cluster(count: int = RANKS) -> Cluster:
    """CPUs, each joined with each other by links of its own."""
    devices = tuple(Device(f"cpu:{rank}", "cpu", FLOPS, 1e12, 1e12) for rank in range(count))
    square = np.ones((count, count))
    return Cluster("four", devices, LATENCY * square, BANDWIDTH * square, np.arange(count**2).reshape(count, count))


def traced(step: Callable[..., Tensor]) -> GraphModule:
    inputs = (torch.zeros(rows, WIDTH) for rows in (WIDTH, WIDTH, WIDTH // RANKS))
    found: GraphModule = make_fx(step, tracing_mode="fake")(*inputs)
    return found


def gathering(*, waits_at_once: bool) -> Callable[..., Tensor]:
    """Two products while a weight is gathered, one with it, and a sum over all ranks."""
    ops = torch.ops._c10d_functional

    def step(x: Tensor, weight: Tensor, shard: Tensor) -> Tensor:
        name = group_name()
        weights = ops.all_gather_into_tensor(shard, RANKS, name)
        weights = ops.wait_tensor(weights) if waits_at_once else weights
        hidden = x @ weight @ weight
        weights = weights if waits_at_once else ops.wait_tensor(weights)
        total: Tensor = ops.wait_tensor(ops.all_reduce(hidden @ weights.t(), "sum", name))
        return total

    return step


GATHER, SUM = ring(RANKS - 1, GATHERED / RANKS), ring(2 * (RANKS - 1), GATHERED / RANKS)


@pytest.mark.parametrize(
    ("waits_at_once", "order", "expected"),
    [
        (False, "program", max(GATHER, 2 * PRODUCT) + PRODUCT + SUM),
        (True, "program", GATHER + 3 * PRODUCT + SUM),  # nothing overtakes a wait
        (True, "longest_path", max(GATHER, 2 * PRODUCT) + PRODUCT + SUM),
    ],
)
def test_a_step_takes_what_is_not_hidden(waits_at_once: bool, order: str, expected: float) -> None:
    placed = placelab.place(traced(gathering(waits_at_once=waits_at_once)), cluster=cluster(), order=order)
    assert placed.timeline.step_seconds == pytest.approx(expected)
    assert [device.name for device in placed.problem.cluster.devices] == ["cpu:0", "communication"]
    assert any("nothing to place" in note for note in placed.result.notes)


def test_a_graph_of_a_rank_is_a_file(tmp_path: Path) -> None:
    graph = rank_graph(traced(gathering(waits_at_once=False)), name="step")
    assert graph.kinds == (
        "ALL_GATHER:ranks=0-3", "aten.mm", "aten.mm", "wait", "aten.mm", "ALL_REDUCE:ranks=0-3", "wait",
    )  # fmt: skip
    assert graph.bytes_accessed[[0, 5]].tolist() == [GATHERED / RANKS, GATHERED]
    assert graph.flops[1] == 2 * WIDTH**3
    assert graph.held is not None
    assert sorted(graph.held.bytes.tolist()) == [GATHERED / RANKS, GATHERED, GATHERED]
    save_graph(graph, tmp_path / "step.graph.json")
    read = load_graph_file(tmp_path / "step.graph.json")
    took = [placelab.place(each, cluster=cluster()).timeline.step_seconds for each in (graph, read)]
    assert took[0] == took[1] > 0


def test_what_is_written_in_place_is_read_and_waited_for() -> None:
    ops = torch.ops._c10d_functional

    def step(x: Tensor, weight: Tensor, _: Tensor) -> Tensor:
        y = x @ weight
        ops.wait_tensor(ops.all_reduce_(y, "sum", group_name()))
        return y @ weight

    graph = rank_graph(traced(step))
    assert graph.kinds == ("aten.mm", "ALL_REDUCE:ranks=0-3", "wait", "aten.mm")
    edges = dict(zip(map(tuple, graph.edges.tolist()), graph.control.tolist(), strict=True))
    assert edges == {(0, 1): False, (1, 2): False, (1, 3): False, (2, 3): True}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ALL_REDUCE", ring(2 * (RANKS - 1), GATHERED / RANKS)),
        ("REDUCE_SCATTER", ring(RANKS - 1, GATHERED / RANKS)),
        ("ALL_GATHER", ring(RANKS - 1, GATHERED)),
        ("ALL_TO_ALL", LATENCY + GATHERED / RANKS / BANDWIDTH),  # each message has a link of its own
        ("GATHER", LATENCY + GATHERED / BANDWIDTH),
        ("BROADCAST", (RANKS - 1) * LATENCY + GATHERED / BANDWIDTH),
        ("COMM_SEND_NODE", LATENCY + GATHERED / BANDWIDTH),
    ],
)
def test_a_collective_takes_what_its_algorithm_takes(name: str, expected: float) -> None:
    assert seconds_of(cluster(), name, GATHERED) == pytest.approx(expected)


def test_a_group_is_as_fast_as_its_links() -> None:
    """On GPUs a group within a server and one across servers take what NCCL takes among these."""
    servers = load_cluster("dgx_a100:servers=2,devices=4")
    for ranks in ((0, 1, 2, 3), (0, 4), tuple(range(8))):
        taken = seconds_of(servers, communication_kind("ALL_REDUCE", ranks), 1e9)
        assert taken == all_reduce_seconds(servers, ranks, 1e9)
    one = cluster()
    shared = replace(one, channel=np.zeros_like(one.channel))  # a bus carries one message at a time
    assert seconds_of(shared, "ALL_TO_ALL", GATHERED) == pytest.approx(ring(12, GATHERED / RANKS))


@pytest.mark.parametrize("ranks", [(), (3,), (0, 1, 2), (0, 2, 4), (1, 2, 5, 6, 9)])
def test_a_kind_names_its_ranks(ranks: tuple[int, ...]) -> None:
    assert ranks_of(communication_kind("ALL_REDUCE", reversed(ranks))) == ranks


def test_what_one_rank_cannot_be_gets_one_sentence() -> None:
    step = traced(gathering(waits_at_once=True))
    with pytest.raises(InputError, match="is among ranks up to 3, and cluster 'four' has devices for ranks up to 1"):
        placelab.place(step, cluster=cluster(2))
    with pytest.raises(InputError, match="is what one rank runs, with collectives, and 'run:host=30us'"):
        placelab.place(step, cluster="p100x4", runtime="run:host=30us")
    with pytest.raises(InputError, match=r"does not say what it gives; trace the step by .*make_fx"):
        rank_graph(torch.fx.symbolic_trace(torch.nn.Linear(2, 2)))
