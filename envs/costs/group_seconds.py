"""Seconds of grouped graphs: a group of ops costs what its members cost back to back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphs.cluster import Cluster
from graphs.op_graph import Floats, Ints, OpGraph


def group_seconds(graph: OpGraph, cluster: Cluster, of_ops: Callable[[OpGraph], Floats]) -> Floats:
    """(ops, devices) seconds of a graph, from those of its finest ops: `of_ops` is never given a grouped graph.

    k members that take time have k launches: k - 1 inside the group, the last after it.
    """
    if graph.members is None:
        return of_ops(graph)
    return _summed(group_seconds(graph.members, cluster, of_ops), graph.member_of, len(graph), cluster)


def _summed(member_seconds: Floats, member_of: Ints, groups: int, cluster: Cluster) -> Floats:
    seconds, launched = np.zeros((groups, len(cluster))), np.zeros((groups, len(cluster)))
    np.add.at(seconds, member_of, member_seconds)
    np.add.at(launched, member_of, member_seconds > 0)
    between: Floats = np.maximum(launched - 1, 0) * cluster.launch_seconds
    return seconds + between
