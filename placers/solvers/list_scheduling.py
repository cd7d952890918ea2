"""List scheduling: what schedulers share that take ops by rank and give each a device (HEFT, PEFT, m-SCT, m-ETF)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from envs.costs.costs import costs_of
from envs.held_memory import HeldMemory, Room
from envs.placer_result import PlacerResult
from envs.simulation.simulator import Simulator
from graphs.cluster import Cluster
from graphs.op_graph import Floats, Ints, OpGraph
from graphs.problem import Problem

MEMORY_SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)  # of each device's memory to fill, tried in turn until the plan fits


def place_within_memory(problem: Problem, name: str, seed: int, budget: int, scheduler: Scheduler) -> PlacerResult:
    """What a scheduler makes of a problem, again with less memory to fill for as long as it does not fit."""
    simulator, graph = Simulator(problem), problem.graph
    held = HeldMemory.of(problem)
    seconds = costs_of(problem).busy_seconds(problem.cluster)
    for share in MEMORY_SHARES[: max(budget, 1)]:
        planned = scheduler(graph, problem.cluster, seconds, graph.carried_bytes, Room(held, share)).placement
        placement = problem.made_allowed(planned)
        if budget <= 1 or simulator.run(placement).fits:
            break
    return PlacerResult.of_units(problem, placement, name, seed, simulations=simulator.simulations)


class Scheduler(Protocol):
    """A way to place every unit; `seconds` is (ops, devices), `payload` (edges,) bytes, `room` the memory to fill."""

    def __call__(self, graph: OpGraph, cluster: Cluster, seconds: Floats, payload: Floats, room: Room, /) -> Schedule:
        """The schedule."""
        ...


@dataclass(frozen=True, eq=False)
class Schedule:
    """What a list scheduler plans, without contention for the channels."""

    placement: Ints  # (units,) device
    start: Floats  # (ops,) seconds
    finish: Floats  # (ops,) seconds


def upward_ranks(graph: OpGraph, cluster: Cluster, seconds: Floats, payload: Floats) -> Floats:
    """(ops,) seconds: rank(i) = w(i) + max over successors j of (c(i, j) + rank(j)), equation 5 of HEFT's paper.

    w is the mean over devices, and c the mean latency plus the bytes over the mean bandwidth, of distinct devices.
    """
    mean_transfer = mean_transfers(graph, cluster, payload)
    ranks: Floats = seconds.mean(axis=1)
    offsets, by_producer = graph.successors
    consumers, costs = graph.edges[by_producer, 1], mean_transfer[by_producer]
    for op in graph.topological_order[::-1].tolist():
        out = slice(offsets[op], offsets[op + 1])
        ranks[op] += (costs[out] + ranks[consumers[out]]).max(initial=0.0)
    return ranks


def mean_transfers(graph: OpGraph, cluster: Cluster, payload: Floats) -> Floats:
    """(edges,) mean latency plus the bytes over the mean bandwidth, of distinct devices."""
    pairs = ~np.eye(len(cluster), dtype=np.bool_)
    if not pairs.any():
        return np.zeros(len(graph.edges))
    mean: Floats = cluster.latency[pairs].mean() * ~graph.control + payload / cluster.bandwidth[pairs].mean()
    return mean


def link_costs(cluster: Cluster) -> tuple[Floats, Floats]:
    """Latency and seconds per byte, (devices, devices) each, with nothing to pay within a device."""
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    return np.where(apart, cluster.latency, 0.0), np.divide(
        1.0, cluster.bandwidth, out=np.zeros(apart.shape), where=apart
    )


def devices_with_room(left: Floats) -> list[int]:
    """The devices with room, or the one that overflows least."""
    return np.flatnonzero(left >= 0).tolist() or [int(left.argmax())]
