"""Max-load: what the busiest device does per sample when samples follow each other through a pipeline.

The cost model of "Efficient Algorithms for Device Placement of DNN Graph Operators" (Tarnawski et al., NeurIPS 2020),
for throughput. A device's load is the time of its ops plus, on an accelerator, that of its transfers, added and not
overlapped. A transfer goes through host memory: the producer's device pays once for each output that another device
reads, and so does each device that reads it, however many of its ops do. CPUs pay for none. Memory is what ops hold.
"""

from __future__ import annotations

import numpy as np

from envs.cost_models import Costs
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem


def device_loads(problem: Problem, placement: Ints, costs: Costs) -> Floats:
    """(devices,) seconds of work and transfers under a placement (ops,)."""
    graph, devices = problem.graph, len(problem.cluster)
    ops = np.arange(len(graph))
    loads = np.bincount(placement, weights=costs.op_seconds[ops, placement], minlength=devices)
    producer, consumer = graph.edges[~graph.control].T
    crosses = placement[producer] != placement[consumer]
    received = np.unique(producer[crosses] * devices + placement[consumer[crosses]])
    sent = np.unique(producer[crosses])
    moves = move_seconds(problem)
    for op, device in ((sent, placement[sent]), np.divmod(received, devices)):
        loads += np.bincount(device, weights=moves[op, device], minlength=devices)
    return loads.astype(np.float64)


def max_load(problem: Problem, placement: Ints, costs: Costs) -> float:
    """Seconds of the busiest device under a placement (ops,)."""
    return float(device_loads(problem, placement, costs).max())


def move_seconds(problem: Problem) -> Floats:
    """(ops, devices) seconds to move an op's output between the device and host memory; none for a CPU.

    Host memory is where the first CPU is. A cluster without a CPU says only how long two accelerators take: half of
    that, on average over the others, is one side's share.
    """
    cluster, moved = problem.cluster, problem.graph.output_bytes[:, None]
    cpus = cluster.is_cpu
    seconds = np.zeros((len(problem.graph), len(cluster)))
    if cpus.any():
        host = int(cpus.argmax())
        seconds[:, ~cpus] = cluster.latency[~cpus, host] + moved / cluster.bandwidth[~cpus, host]
    elif len(cluster) > 1:
        for device in range(len(cluster)):
            others = np.arange(len(cluster)) != device
            both_sides = cluster.latency[device, others] + moved / cluster.bandwidth[device, others]
            seconds[:, device] = both_sides.mean(axis=1) / 2
    return seconds
