"""How long messages and collectives of one rank take, if nothing else uses the cluster's links.

Rank r is the cluster's device r; of a cluster with both, CPUs are none. A group is the ranks that an op's kind names
(`graphs.formats.collectives`), or else all. Of S bytes that each of n ranks puts in, over links of latency a and b
bytes/s, as a rule:

    ALL_REDUCE                              2 (n - 1) (a + S / (n b)), a ring; on GPUs as NCCL (`envs.expansion.nccl`)
    REDUCE_SCATTER, ALL_GATHER              half of an all-reduce of all bytes, S or n S
    ALL_TO_ALL, SCATTER, GATHER             what is sent over the busiest channel, one message after another
    BROADCAST, REDUCE                       (n - 1) a + S / b, in pieces along a chain
    COMM_SEND_NODE, COMM_RECV_NODE, others  a + S / b of the slowest link: with whom is not known

A ring goes from server to server once, and is as slow in each step as its slowest link.
"""

from functools import lru_cache

import numpy as np

from envs.expansion.nccl import collective_seconds, route_of
from envs.expansion.servers import by_server
from graphs.cluster import Cluster
from graphs.formats.chakra_nodes import Collective
from graphs.formats.collectives import is_sent, name_of_kind, ranks_of
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem

_SUMS = (Collective.ALL_REDUCE.name, Collective.REDUCE_SCATTER.name, Collective.REDUCE_SCATTER_BLOCK.name)
_GATHERS = Collective.ALL_GATHER.name
_TO_ALL = (Collective.ALL_TO_ALL.name, Collective.SCATTER.name, Collective.GATHER.name)
_CHAINS = (Collective.BROADCAST.name, Collective.REDUCE.name)


def communication_seconds(problem: Problem) -> Floats:
    """(ops,) seconds of ops that send bytes from or to other ranks, 0 of all others.

    Raises InputError for ranks that the cluster does not have.
    """
    graph, cluster = problem.graph, problem.cluster
    seconds = np.zeros(len(graph))
    for op in np.flatnonzero(is_sent(graph)).tolist():
        seconds[op] = seconds_of(cluster, graph.kinds[op], float(graph.bytes_accessed[op]))
    return seconds


def seconds_of(cluster: Cluster, kind: str, sent_bytes: float) -> float:
    """What an op of a kind takes, of which each rank puts in so many bytes; through memory if a rank is alone."""
    name, devices = name_of_kind(kind), _devices(cluster, kind)
    if len(devices) == 1:
        return sent_bytes / cluster.devices[devices[0]].bytes_per_second
    count = len(devices)
    if name in _SUMS:
        return _summed(cluster, devices, sent_bytes, is_half=name != Collective.ALL_REDUCE.name)
    if name == _GATHERS:
        return _summed(cluster, devices, count * sent_bytes, is_half=True)
    if name in _TO_ALL:
        return _exchanged(cluster, devices, name, sent_bytes)
    latency, bandwidth, _ = _ring(cluster, devices)
    if name in _CHAINS:
        return float((count - 1) * latency.max() + sent_bytes / bandwidth.min())
    apart = np.ix_(devices, devices)
    return float(cluster.latency[apart].max() + sent_bytes / cluster.bandwidth[apart][~np.eye(count, dtype=bool)].min())


def _devices(cluster: Cluster, kind: str) -> tuple[int, ...]:
    """The devices of the ranks that a kind names, or all that are no CPUs, unless there are no others."""
    able = np.flatnonzero(cluster.is_cpu if cluster.is_cpu.all() else ~cluster.is_cpu)
    ranks = ranks_of(kind) or tuple(range(len(able)))
    if ranks[-1] >= len(able):
        raise InputError(
            f"{kind!r} is among ranks up to {ranks[-1]}, and cluster {cluster.name!r} has devices for ranks up to "
            f"{len(able) - 1}; give the cluster that all ranks run on"
        )
    return tuple(able[list(ranks)].tolist())


def _summed(cluster: Cluster, devices: tuple[int, ...], size: float, *, is_half: bool) -> float:
    """An all-reduce of so many bytes, or half of one."""
    if not cluster.is_cpu.any():
        route = route_of(cluster, devices)
        route = route.half() if is_half else route
        return float(collective_seconds(route.latency, np.array([size * route.per_byte]))[0])
    latency, bandwidth, channel = _ring(cluster, devices)
    steps = (len(devices) - 1) * (1 if is_half else 2)
    return steps * _busiest(channel, latency + size / len(devices) / bandwidth)


def _exchanged(cluster: Cluster, devices: tuple[int, ...], name: str, size: float) -> float:
    """What each rank, or the first, sends to each other, or gets from it."""
    source, target = np.nonzero(~np.eye(len(devices), dtype=np.bool_))
    which = {Collective.SCATTER.name: source == 0, Collective.GATHER.name: target == 0}.get(name, source >= 0)
    pairs = np.array(devices)[source[which]], np.array(devices)[target[which]]
    part = size if name == Collective.GATHER.name else size / len(devices)
    return _busiest(cluster.links[pairs], cluster.latency[pairs] + part / cluster.bandwidth[pairs])


def _busiest(channel: Ints, seconds: Floats) -> float:
    """The time of the busiest channel, given (messages,) channels and seconds."""
    _, which = np.unique(channel, return_inverse=True)
    return float(np.bincount(which, seconds).max())


@lru_cache(1 << 10)
def _ring(cluster: Cluster, devices: tuple[int, ...]) -> tuple[Floats, Floats, Ints]:
    """(devices,) latency, bandwidth and channel from each device of a ring to the next."""
    order, _ = by_server(cluster, devices)
    ring = np.array(devices)[order]
    pairs = ring, np.roll(ring, -1)
    return cluster.latency[pairs], cluster.bandwidth[pairs], cluster.links[pairs]
