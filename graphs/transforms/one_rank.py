"""One rank's step: ops on its device, and messages and collectives on a stream of their own.

A graph with messages or collectives is what one of many ranks runs: none of its ops can go to another device. So the
cluster on which all ranks run, whose links say what is exchanged how fast, becomes the rank's device and, next to it,
its stream of communication, which receives at once what it reads: what overlaps is seen, as with PyTorch's streams.

    device          aaabbbb      ccc        c waits for what b's collective brings, a's is hidden
    communication      ===== ====

Where ops run in the program's order, and the graph says where it waits for what was communicated, both streams keep to
that order strictly, as PyTorch's do: nothing on the device overtakes a wait. In any other order only data hold ops up.

What the stream holds, as long as it sends or receives it, counts to the stream, whose memory has no limit.
"""

from dataclasses import replace

import numpy as np

from graphs.cluster import FREE, Cluster
from graphs.formats.collectives import WAIT, communicates, ranks_of
from graphs.op_graph import OpGraph
from graphs.problem import Problem

COMMUNICATION_STREAM = "communication"


def is_one_rank(graph: OpGraph, cluster: Cluster) -> bool:
    """Whether a graph is what one of the ranks on a cluster runs; on one device all is run there."""
    return len(cluster) > 1 and bool(communicates(graph).any())


def of_one_rank(problem: Problem, *, in_order: bool) -> Problem:
    """A problem whose ops are timed on the cluster of all ranks as that of one rank, each op in its place.

    With `in_order` streams keep to the order of the program, if the graph says where that waits.
    """
    graph, cluster, seconds = problem.graph, problem.cluster, problem.op_seconds
    assert seconds is not None
    able = np.flatnonzero(cluster.is_cpu if cluster.is_cpu.all() else ~cluster.is_cpu)
    device = cluster.devices[able[_rank(graph)]]
    stream = replace(
        device, name=COMMUNICATION_STREAM, memory_bytes=np.inf, reserved_bytes=0.0, fragmentation=0.0,
        launch_seconds=0.0,
    )  # fmt: skip
    one = Cluster(
        f"one rank of {cluster.name}", (device, stream), np.zeros((2, 2)), np.full((2, 2), np.inf),
        np.full((2, 2), FREE), hosts=cluster.hosts,
    )  # fmt: skip
    sends = communicates(graph)
    names = [(COMMUNICATION_STREAM,) if there else (device.name,) for there in sends.tolist()]
    untied = np.full(len(graph), -1)
    bound = replace(graph, devices=tuple(names), mirror=untied, group=untied)
    if in_order and WAIT in graph.kinds:
        follows = np.concatenate([np.column_stack([of[:-1], of[1:]]) for of in map(np.flatnonzero, (sends, ~sends))])
        edges = dict.fromkeys(map(tuple, follows.tolist()), True)
        edges |= dict(zip(map(tuple, graph.edges.tolist()), graph.control.tolist(), strict=True))
        bound = replace(bound, edges=np.array(list(edges)), control=np.array(list(edges.values())))
    own = seconds[:, able[_rank(graph)]]
    return replace(problem, graph=bound, cluster=one, op_seconds=np.stack([own, own], axis=1))


def _rank(graph: OpGraph) -> int:
    """The least rank that is in all groups; 0 where groups are not known."""
    groups = [set(ranks_of(kind)) for kind in set(graph.kinds) if ranks_of(kind)]
    return min(set.intersection(*groups), default=0) if groups else 0
