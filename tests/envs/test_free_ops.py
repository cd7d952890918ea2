"""An op that takes no time needs no device: it starts and ends at the instant at which it is ready."""

import numpy as np
import pytest

from envs.simulation.bounds import path_bound
from envs.simulation.simulator import Simulator
from envs.timelines.timeline import Timeline
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from tests.oracle.toys import toy_cluster, toy_graph

ORDERS = ("fifo", "longest_path")


def timeline(problem: Problem, placement: list[int], order: str = "fifo") -> Timeline:
    return Simulator(problem, order=order).timeline(placement)


@pytest.mark.parametrize("order", ORDERS)
def test_a_free_op_runs_beside_others_and_sends_at_once(order: str) -> None:
    """b is ready at 2, while c occupies its device until 10, and the device rests until 14; d waits on the other."""
    graph = toy_graph([2, 0, 10, 1], [(0, 1), (1, 3)], output_bytes=[2, 3, 0, 0])
    found = timeline(Problem(graph, toy_cluster(3, launch=4.0)), [1, 0, 0, 2], order)
    assert found.start.tolist() == [0, 4, 0, 7]
    assert found.finish.tolist() == [2, 4, 10, 8]
    assert found.transfers.start.tolist() == [2, 4]


@pytest.mark.parametrize("order", ORDERS)
def test_free_ops_follow_each_other_in_one_instant(order: str) -> None:
    """b, c and d end with a: e, which reads d, is ready at once, and f goes to the channel before g, which is ready
    at the same instant but is the output of a later op."""
    graph = toy_graph([1, 0, 0, 0, 2, 1, 1], [(0, 1), (1, 2), (2, 3), (3, 4), (0, 5), (3, 6)])
    found = timeline(Problem(graph, toy_cluster(2)), [0, 0, 0, 0, 0, 1, 1], order)
    assert found.start.tolist() == [0, 1, 1, 1, 1, 2, 3]
    assert found.transfers.producer.tolist() == [0, 3]


def test_a_free_op_without_inputs_ends_at_the_start_and_may_end_the_step() -> None:
    graph = toy_graph([0, 1, 0], [(0, 2), (1, 2)], output_bytes=[5, 0, 0])
    found = timeline(Problem(graph, toy_cluster(2, launch=1.0)), [0, 0, 1])
    assert found.finish.tolist() == [0, 1, 5]
    assert found.step_seconds == 5
    assert timeline(Problem(toy_graph([0, 0], [(0, 1)], output_bytes=[0, 0]), toy_cluster(2)), [0, 1]).step_seconds == 0


def test_an_op_may_be_free_on_one_device_only() -> None:
    problem = Problem(
        toy_graph([1, 1, 1], [(0, 1), (1, 2)]), toy_cluster(2, launch=1.0),
        op_seconds=np.array([[1.0, 1.0], [0.0, 3.0], [1.0, 1.0]]),
    )  # fmt: skip
    assert timeline(problem, [0, 0, 0]).start.tolist() == [0, 1, 2]
    assert timeline(problem, [1, 1, 1]).start.tolist() == [0, 2, 6]
    assert path_bound(problem, np.array([[1.0, 9.0], [0.0, 9.0], [1.0, 9.0]])) == 3  # b waits for no launch, c does


def test_a_transfer_of_no_seconds_still_waits_for_its_channel() -> None:
    """At 4 the transfer of b arrives, and d, which reads it, starts before the transfer of a, and with it c, can."""
    graph = toy_graph([1, 0, 1, 1], [(0, 2), (1, 3)], output_bytes=[0, 4, 0, 0])
    found = timeline(Problem(graph, toy_cluster(2)), [0, 0, 1, 1])
    assert found.transfers.finish.tolist() == [4, 4]
    assert found.start.tolist() == [0, 0, 5, 4]


def test_what_a_free_op_makes_is_held_from_its_instant() -> None:
    """b is free, and its output of 4 bytes is read by c; until 5 the device is busy with d."""
    graph = toy_graph([1, 0, 2, 5], [(0, 1), (1, 2)], output_bytes=[1, 4, 8, 0])
    found = timeline(Problem(graph, toy_cluster(2)), [0, 1, 1, 1])
    times, held = found.memory_curve(1)
    assert times.tolist() == [0, 1, 2, 5, 7]
    assert held.tolist() == [0, 1, 4, 12, 0]
    assert found.peak_bytes.tolist() == [1, 12]
    cascade = toy_graph([1, 0, 0, 1], [(0, 1), (1, 2), (2, 3)], output_bytes=[1, 99, 4, 0])
    assert timeline(Problem(cascade, toy_cluster(1)), [0, 0, 0, 0]).peak_bytes.tolist() == [4]  # 99 within an instant


def rings(replicas: int, layers: int) -> tuple[OpGraph, list[int]]:
    """Replicas of `layers` layers, 1 s forward and 2 s backward each, and the device of every op.

    Each layer's gradient, two bytes, is summed around a ring of 2 (R - 1) sends of its R-th part; a step of the ring
    is an op that takes no time.
    """
    hops = 2 * (replicas - 1)
    passes = [("forward", i) for i in range(layers)] + [("backward", i) for i in reversed(range(layers))]
    names = [(kind, layer, r) for r in range(replicas) for kind, layer in passes]
    names += [(f"hop{hop}", layer, r) for hop in range(hops + 1) for layer in range(layers) for r in range(replicas)]
    number = {name: index for index, name in enumerate(names)}
    in_turn = [(i, i + 1) for i in range(len(passes) * replicas - 1) if names[i][2] == names[i + 1][2]]
    sent = []
    for layer in range(layers):
        for r in range(replicas):
            sent.append((number["backward", layer, r], number["hop0", layer, r]))
            for hop in range(hops):
                sent.append((number[f"hop{hop}", layer, r], number[f"hop{hop + 1}", layer, (r + 1) % replicas]))
    seconds = [{"forward": 1.0, "backward": 2.0}.get(kind, 0.0) for kind, _, _ in names]
    graph = OpGraph(
        "rings", tuple(f"{kind}{layer}.{r}" for kind, layer, r in names), ("any",) * len(names), np.array(seconds),
        np.zeros(len(names)), np.full(len(names), 2.0 / replicas), np.array(in_turn + sent),
        control=np.array([True] * len(in_turn) + [False] * len(sent)),
    )  # fmt: skip
    return graph, [r for _, _, r in names]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("replicas", "seconds"), [(2, 32), (4, 42), (8, 47)])
def test_rings_of_sends_run_beside_the_backward_pass(replicas: int, seconds: float, order: str) -> None:
    """The first gradient is there at 12 s; from then on the links are never idle, and no backward op delays a send."""
    graph, placement = rings(replicas, layers=10)
    assert seconds == 12 + 10 * 2 * (replicas - 1) * (2 / replicas)
    assert timeline(Problem(graph, toy_cluster(replicas)), placement, order).step_seconds == seconds
