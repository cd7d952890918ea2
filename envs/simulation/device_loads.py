"""Max-load: what the busiest device does per sample when samples follow each other through a pipeline.

The cost model of "Efficient Algorithms for Device Placement of DNN Graph Operators" (Tarnawski et al., NeurIPS 2020),
for throughput. A device's load is the time of its ops plus, on an accelerator, that of its transfers, added and not
overlapped. A transfer goes through host memory: it takes time once on the producer's device, for each output that
another device reads, and once on each device that reads it, however many of its ops do. An edge's own message is an
output with one reader. On CPUs transfers take no time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.costs.costs import Costs
from envs.simulation.compiled import compiled
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem


@dataclass(frozen=True, eq=False)
class Moved:
    """What may be moved: the output of each op, and after them the message of each edge that has one of its own."""

    source: Ints  # (moved,) the op that makes it
    reads: Ints  # (reads, 2) what is moved, the op that reads it; in the order of the graph's edges
    seconds: Floats  # (moved, devices) between the device and host memory; none for a CPU

    @classmethod
    def of(cls, problem: Problem) -> Moved:
        """What may be moved in a problem."""
        graph = problem.graph
        reads = np.stack([graph.edge_output, graph.edges[:, 1]], axis=1)[~graph.control]
        source = np.concatenate([np.arange(len(graph)), graph.edges[graph.has_message, 0]])
        return cls(source, reads, _move_seconds(problem, graph.moved_bytes))


class Loads:
    """What every device does under placements of one problem."""

    def __init__(self, problem: Problem, costs: Costs) -> None:
        moved = Moved.of(problem)
        # compressed rows: what is moved, m, is read by the ops readers[offsets[m]:offsets[m + 1]]
        by_moved = np.argsort(moved.reads[:, 0], kind="stable")
        offsets = np.zeros(len(moved.source) + 1, np.int64)
        np.cumsum(np.bincount(moved.reads[:, 0], minlength=len(moved.source)), out=offsets[1:])
        readers = np.ascontiguousarray(moved.reads[by_moved, 1])
        self._devices = len(problem.cluster)
        op_seconds = np.array(costs.op_seconds, np.float64, order="C")
        self._problem = (op_seconds, moved.source, offsets, readers, np.ascontiguousarray(moved.seconds))

    def on_devices(self, placements: Ints) -> Floats:
        """(plans, devices) seconds of work and transfers under each of (plans, ops) placements."""
        loads = np.empty((len(placements), self._devices))
        seen, parts = np.empty(self._devices, np.int64), np.empty((3, self._devices))
        _add_up(*self._problem, np.ascontiguousarray(placements, np.int64), seen, parts, loads)
        return loads


@compiled
def _add_up(
    op_seconds: Floats, source: Ints, offsets: Ints, readers: Ints, move_seconds: Floats, placements: Ints, seen: Ints,
    parts: Floats, loads: Floats,
) -> None:  # fmt: skip
    """Write `loads`, (plans, devices); `seen`, (devices,), and `parts`, (3, devices), are scratch."""
    work, sent, received = parts[0], parts[1], parts[2]
    for plan in range(len(placements)):
        placement = placements[plan]
        parts[:] = 0.0
        seen[:] = -1  # what each device has received last
        for op in range(len(op_seconds)):
            work[placement[op]] += op_seconds[op, placement[op]]
        for moved in range(len(source)):
            here, leaves = placement[source[moved]], False
            for at in range(offsets[moved], offsets[moved + 1]):
                there = placement[readers[at]]
                if there != here:
                    leaves = True
                    if seen[there] != moved:
                        seen[there] = moved
                        received[there] += move_seconds[moved, there]
            if leaves:
                sent[here] += move_seconds[moved, here]
        for device in range(len(seen)):
            loads[plan, device] = work[device] + sent[device] + received[device]


def _move_seconds(problem: Problem, size: Floats) -> Floats:
    """(moved, devices) seconds to move the given bytes, (moved,), between the device and host memory; none for a CPU.

    Host memory is where the first CPU is. A cluster without a CPU says only how long two accelerators take: half of
    that, on average over the others, is one side's share.
    """
    cluster, moved = problem.cluster, size[:, None]
    cpus = cluster.is_cpu
    seconds = np.zeros((len(size), len(cluster)))
    if cpus.any():
        host = int(cpus.argmax())
        seconds[:, ~cpus] = cluster.latency[~cpus, host] + moved / cluster.bandwidth[~cpus, host]
    elif len(cluster) > 1:
        for device in range(len(cluster)):
            others = np.arange(len(cluster)) != device
            both_sides = cluster.latency[device, others] + moved / cluster.bandwidth[device, others]
            seconds[:, device] = both_sides.mean(axis=1) / 2
    return seconds
