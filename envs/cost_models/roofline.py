"""Roofline: an op takes as long as its arithmetic or its memory traffic, whichever is longer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.cost_models import Costs
from graphs.cluster import Cluster
from graphs.op_graph import Floats, Ints, OpGraph
from graphs.problem import Problem


@dataclass(frozen=True)
class Roofline:
    """The roofline model (Williams et al. 2009) at the devices' full speeds.

    Seconds = max(flops / flops_per_second, bytes_accessed / bytes_per_second). Recorded times
    (`OpGraph.measured_seconds`) are not read: they are known on one device only.
    """

    def costs(self, problem: Problem) -> Costs:
        """(ops, devices) seconds. A group of ops costs what its members cost back to back, launches in between."""
        return Costs(_seconds(problem.graph, problem.cluster))


def build() -> Roofline:
    """The roofline cost model; it has no knobs."""
    return Roofline()


def _seconds(graph: OpGraph, cluster: Cluster) -> Floats:
    if graph.members is not None:
        return _grouped(_seconds(graph.members, cluster), graph.member_of, len(graph), cluster)
    flops_per_second = np.array([device.flops_per_second for device in cluster.devices])
    bytes_per_second = np.array([device.bytes_per_second for device in cluster.devices])
    arithmetic, traffic = graph.flops[:, None] / flops_per_second, graph.bytes_accessed[:, None] / bytes_per_second
    longer: Floats = np.maximum(arithmetic, traffic)
    return longer


def _grouped(member_seconds: Floats, member_of: Ints, groups: int, cluster: Cluster) -> Floats:
    """(groups, devices) seconds. k members that take time have k launches: k - 1 inside, the last after the group."""
    seconds, launched = np.zeros((groups, len(cluster))), np.zeros((groups, len(cluster)))
    np.add.at(seconds, member_of, member_seconds)
    np.add.at(launched, member_of, member_seconds > 0)
    between: Floats = np.maximum(launched - 1, 0) * cluster.launch_seconds
    return seconds + between
