"""Updates that run on CPUs: what is sent, what is held where, and when, in closed form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from envs.files.plan_file import load_plan, save_plan
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule, Zero
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from graphs.cluster import Cluster
from graphs.files.graph_source import graph_source
from graphs.files.load import load_graph
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from tests.envs.expansion.pipelines import Pipeline, servers
from tests.envs.expansion.test_sharded_states import MODEL, REPLICAS, replicas

ZEROS = get_args(Zero)


def with_cpu(cluster: Cluster, speed: float = 1.0, cpus: tuple[int, ...] = (-1,)) -> Cluster:
    """The cluster, some of whose devices are CPUs, of a speed."""
    devices = list(cluster.devices)
    for each in cpus:
        devices[each] = replace(devices[each], kind="cpu", flops_per_second=speed)
    return replace(cluster, devices=tuple(devices))


def trained(optimizer: str = "adam", model: str = MODEL, precision: str = "auto") -> Problem:
    """A model's step on replicas and a CPU, the last device."""
    graph = load_graph(graph_source(model).in_precision(precision))
    return Problem(graph, with_cpu(servers(REPLICAS + 1, bandwidth=1e6)), optimizer)


def offloaded(problem: Problem, micro_batches: int, zero: Zero, group: int = 0) -> Plan:
    """The replicas of `test_sharded_states`, or one of them without parts, whose weights the CPU updates."""
    plan = replicas(problem, micro_batches, zero, group=group)
    devices = ((0, 1, 2, 3) if zero else (0,),) * len(problem.graph)
    return replace(plan, devices=devices, schedule=replace(plan.schedule, offload=True))


def sent(timeline: Timeline, source: int, destination: int) -> float:
    moved = timeline.transfers
    these = (moved.source == source) & (moved.destination == destination)
    return float(timeline.graph.moved_bytes[moved.output[these]].sum())


def static_bytes(timeline: Timeline) -> list[float]:
    """(devices,) without inputs and buffers."""
    others = timeline.given_bytes(grows=True) + timeline.given_bytes(grows=False)
    return list((timeline.static_bytes - others).tolist())


# ---- bytes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("micro_batches", [1, 2])
@pytest.mark.parametrize("group", [0, 2])
def test_gradients_and_weights_cross_once_in_a_step(micro_batches: int, group: int) -> None:
    """Ren et al. 2021: of n replicas each sends an n-th of the gradients, and gets as much of the weights.

    So it is however many micro-batches there are. What replicas send each other stays what it is; a tied weight is
    updated once.
    """
    problem = trained(model=f"{MODEL},tied=true")
    weights = float(problem.graph.weights.sum())
    for zero in ZEROS if not group else ZEROS[1:]:
        plan = offloaded(problem, micro_batches, zero, group)
        timeline = simulate(problem, plan)
        used, parts = plan.devices[0], (group or REPLICAS) if zero else 1
        for device in used:
            assert sent(timeline, device, REPLICAS) == pytest.approx(weights / parts)
            assert sent(timeline, REPLICAS, device) == pytest.approx(weights / parts)
        without = simulate(problem, replace(plan, schedule=replace(plan.schedule, offload=False)))
        for pair in ((0, 1), (2, 3), (1, 2)):
            assert sent(timeline, *pair) == pytest.approx(sent(without, *pair))


@pytest.mark.parametrize(("optimizer", "state"), [("sgd", 0), ("momentum", 1), ("adam", 2)])
@pytest.mark.parametrize("group", [0, 2])
def test_devices_hold_all_but_the_state_and_the_cpu_the_state_and_weights(
    optimizer: str, state: int, group: int
) -> None:
    problem = trained(optimizer)
    weights = float(problem.graph.weights.sum())
    for zero in ZEROS if not group else ZEROS[1:]:
        plan = offloaded(problem, 2, zero, group)
        used, parts = len(plan.devices[0]), (group or REPLICAS) if zero else 1
        held = [2.0, 2.0, 1 + 1 / parts, 2 / parts][zero]
        expected = [held * weights] * used + [0.0] * (REPLICAS - used) + [(1 + state) * weights * used / parts]
        assert static_bytes(simulate(problem, plan)) == pytest.approx(expected)


def test_master_copies_are_on_the_cpu() -> None:
    """Of a weight in 2 bytes its gradient in 4 is sent, and 2 come back; the CPU has 4 + 4 + 4 (Adam), and no copy."""
    problem = trained(precision="bf16")
    weights = float(problem.graph.weights.sum())
    timeline = simulate(problem, offloaded(problem, 1, 3))
    assert sent(timeline, 0, REPLICAS) == pytest.approx(2 * weights / REPLICAS)
    assert sent(timeline, REPLICAS, 0) == pytest.approx(weights / REPLICAS)
    each = (2 + 4) / 2 * weights / REPLICAS
    assert static_bytes(timeline) == pytest.approx([each] * REPLICAS + [12 / 2 * weights])


def test_frozen_weights_stay() -> None:
    problem = trained()
    frozen = np.arange(len(problem.graph.weights)) == 0
    problem = replace(problem, graph=replace(problem.graph, frozen=frozen))
    weights = problem.graph.weights
    timeline = simulate(problem, offloaded(problem, 1, 0))
    assert sent(timeline, REPLICAS, 0) == float(weights[1:].sum())
    assert static_bytes(timeline)[REPLICAS] == 3 * float(weights[1:].sum())


def test_gradients_are_freed_once_they_are_sent() -> None:
    """Three layers of 8 bytes: the device has all weights and one gradient, which is sent while the next is computed.

    The CPU has three times as much, and two gradients: one is read, and one arrives.
    """
    problem, plan = chain(3, bandwidth=8.0)
    timeline = simulate(problem, plan)
    assert timeline.peak_bytes.tolist() == [3 * 8 + 8, 3 * (3 * 8) + 2 * 8]
    kept = simulate(problem, replace(plan, schedule=Schedule(zero=1)))
    assert kept.peak_bytes[0] == 3 * 8 * 4


# ---- seconds ---------------------------------------------------------------------------------------------------------


def chain(layers: int, *, bandwidth: float, update: float = 1.0, speed: float = 1.0) -> tuple[Problem, Plan]:
    """Layers of a second forward and one backward on one device, of 8 bytes each, and a CPU that updates them."""
    made = Pipeline(layers, weights=8.0, update=update)
    problem = Problem(made.graph(), with_cpu(servers(2, bandwidth=bandwidth), speed), "adam")
    return problem, Plan(((0,),) * len(problem.graph), PROGRAM, Schedule(offload=True))


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize(("bandwidth", "speed"), [(8.0, 1.0), (4.0, 1.0), (16.0, 0.5)])
def test_updates_run_beside_the_backward_pass(layers: int, bandwidth: float, speed: float) -> None:
    """Of L layers the gradients are sent while those before are computed, updated in turn, and sent back.

        device       F0 F1 F2 B2 B1 B0
        to the CPU               2  1  0
        CPU                         U2 U1 U0
        back                           2  1  0

    The slowest of the four sets the pace of what follows the first gradient.
    """
    problem, plan = chain(layers, bandwidth=bandwidth, speed=speed)
    sending, updating = 8.0 / bandwidth, 1.0 / speed
    pace = max(1.0, sending, updating)
    assert simulate(problem, plan).step_seconds == layers + 1 + 2 * sending + updating + (layers - 1) * pace


def test_a_cpu_updates_its_own_weights() -> None:
    """Where all devices are CPUs offload changes nothing but that a plan is more than a placement."""
    problem, plan = chain(3, bandwidth=8.0)
    problem = replace(problem, cluster=with_cpu(problem.cluster, cpus=(0, 1)))
    plain = replace(plan, schedule=Schedule(zero=1))
    mine, other = simulate(problem, plan), simulate(problem, plain)
    assert mine.step_seconds == other.step_seconds
    assert mine.peak_bytes.tolist() == other.peak_bytes.tolist()


def test_each_device_has_the_cpu_with_the_fastest_link() -> None:
    cluster = with_cpu(servers(5, bandwidth=2.0), cpus=(0, 3))
    bandwidth = cluster.bandwidth.copy()
    bandwidth[4, 3] = bandwidth[3, 4] = 4.0
    latency = cluster.latency.copy()
    latency[2, 0] = 1.0
    near = replace(cluster, bandwidth=bandwidth, latency=latency)
    assert near.nearest_cpu.tolist() == [0, 0, 3, 3, 3]
    assert servers(2).nearest_cpu.tolist() == [-1, -1]


# ---- files and what is refused ---------------------------------------------------------------------------------------


def test_a_plan_file_says_it(tmp_path: Path) -> None:
    problem, plan = chain(1, bandwidth=8.0)
    path = tmp_path / "a.plan.json"
    save_plan(PlacerResult(plan), problem, simulate(problem, plan), path)
    assert load_plan(path, problem).plan == plan


def test_what_cannot_be_offloaded_is_refused() -> None:
    problem = trained()
    several, one = ((0, 1, 2, 3),) * len(problem.graph), ((0,),) * len(problem.graph)
    for schedule, reason in [
        (Schedule(offload=True), "say zero 1, 2 or 3"),
        (Schedule(4, sharing="turns", offload=True), "replicas that take turns"),
        (Schedule(2, update="micro_batch", order="gpipe", offload=True), "an update after each micro-batch"),
    ]:
        with pytest.raises(InputError, match=reason):
            simulate(problem, Plan(several, schedule=schedule))
    plan = Plan(one, schedule=Schedule(offload=True))
    split = replace(plan, split=((),) * len(problem.graph))
    for other, asked, reason in [
        (problem, split, "split of ops cannot be combined with offload"),
        (replace(problem, cluster=servers(5)), plan, "cluster 'servers5' has none; list the CPU of each server"),
        (replace(problem, optimizer="none"), plan, "name the optimizer"),
        (replace(problem, graph=load_graph(MODEL, training=False)), plan, "updates no weights"),
    ]:
        asked = replace(asked, devices=((0,),) * len(other.graph))
        with pytest.raises(InputError, match=reason):
            simulate(other, asked)
