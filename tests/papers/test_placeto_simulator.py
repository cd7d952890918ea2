"""The parity case: the engine with one multicast bus per device is the simulator of Placeto's authors."""

from dataclasses import replace

import numpy as np
import pytest

from envs.simulation.simulator import Simulator
from envs.timelines.timeline import Timeline
from graphs.cluster import Cluster, Device
from graphs.op_graph import Floats, OpGraph
from graphs.problem import Problem
from graphs.runtime import FIFO, RUNTIMES
from tests.oracle.toys import random_graph, toy_graph
from tests.papers.placeto_simulator import BYTES_PER_SECOND, GAP_SECONDS, LAUNCH_SECONDS, neighbours, simulate


def p2_cluster(devices: int) -> Cluster:
    """Devices with an outgoing bus each, as Placeto's simulator has them."""
    device = Device("k80", "gpu", 1.0, 1.0, np.inf, LAUNCH_SECONDS)
    return Cluster.uniform(
        f"p2x{devices}", device, devices, latency=0.0, bandwidth=BYTES_PER_SECOND, shared_out=True, gap=GAP_SECONDS,
        multicast=True,
    )  # fmt: skip


def without_ties(graph: OpGraph, seed: int) -> tuple[OpGraph, Floats]:
    """The same edges with distinct random costs, microseconds to milliseconds."""
    rng = np.random.default_rng(seed)
    return replace(graph, output_bytes=rng.lognormal(12, 2, len(graph))), rng.lognormal(-9, 1.5, len(graph))


def end_with_trailing_holds(timeline: Timeline, seconds: Floats) -> float:
    """Seconds until the last launch and the last gap are over."""
    launches = timeline.finish + np.where(seconds > 0, LAUNCH_SECONDS, 0.0)
    return float(max(launches.max(), (timeline.transfers.finish + GAP_SECONDS).max(initial=0.0)))


@pytest.mark.parametrize("ops", [2, 20, 128, 500, 2000])
@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_the_engine_agrees_with_placetos_simulator(ops: int, devices: int) -> None:
    for seed in range(5 if ops < 2000 else 1):
        graph, seconds = without_ties(random_graph(ops, seed, weights=False), seed)
        per_device = np.repeat(seconds[:, None], devices, axis=1)
        simulator = Simulator(Problem(graph, p2_cluster(devices), op_seconds=per_device, runtime=RUNTIMES[FIFO.name]))
        placement = np.random.default_rng(seed).integers(0, devices, ops)
        theirs = simulate(seconds.tolist(), graph.output_bytes.tolist(), *neighbours(graph), placement.tolist())
        timeline = simulator.timeline(placement)
        assert end_with_trailing_holds(timeline, seconds) == pytest.approx(theirs, rel=1e-9)
        assert timeline.step_seconds <= theirs * (1 + 1e-9)


def test_a_step_by_hand() -> None:
    """a sends to b, c and d in one transfer; b is followed by its launch, c by none, and the transfer by its gap."""
    graph = toy_graph([1, 1, 1, 1], [(0, 1), (0, 2), (0, 3)], output_bytes=[76_000, 0, 0, 0])
    us = simulate([10e-6, 3e-6, 0.0, 2e-6], graph.output_bytes.tolist(), *neighbours(graph), [0, 1, 1, 1]) / 1e-6
    arrival = 10 + 10
    assert us == pytest.approx(max(arrival + 3 + 5.7 + 0 + 2 + 5.7, arrival + 25))
    slower = simulate([10e-6, 30e-6, 0.0, 2e-6], graph.output_bytes.tolist(), *neighbours(graph), [0, 1, 1, 1]) / 1e-6
    assert slower == pytest.approx(arrival + 30 + 5.7 + 0 + 2 + 5.7)
