"""How long what shards exchange takes with NCCL: reduce-scatters, all-gathers, all-to-alls and halos.

What the same devices send to each other of one tensor, in one micro-batch, is a collective: scattered parts of a sum
and what is gathered of it are one all-reduce. It takes as long as `envs.expansion.nccl` says of its busiest channel,
and of as many steps as a device has transfers. What goes from some devices to others takes what its link says.
"""

import numpy as np

from envs.expansion.nccl import collective_seconds
from graphs.algorithms.pairs import distinct_pairs
from graphs.op_graph import Bools, Floats, Ints, OpGraph
from graphs.problem import Problem


def set_exchange_pace(graph: OpGraph, problem: Problem, placement: Ints, tensor: Ints, pace: Floats) -> None:
    """Write how many times what their links say transfers of outputs take, (ops,), where that is still 1.

    `tensor`, (ops,), is equal of ops that hold parts of the same; the problem has the devices and their host.
    """
    cluster, host = problem.cluster, problem.host
    ends = placement[graph.edges]
    carries = ~graph.control & ~graph.has_message & (ends[:, 0] != ends[:, 1]) & (pace[graph.edges[:, 0]] == 1.0)
    sender, target = distinct_pairs(np.stack([graph.edges[carries, 0], ends[carries, 1]], axis=1))[0].T
    source, group = placement[sender], np.unique(tensor[sender], return_inverse=True)[1]
    kept = _is_exchange(group, source, target)[group]
    sender, source, target, group = sender[kept], source[kept], target[kept], group[kept]
    if not len(sender):
        return
    groups, sent, link = int(group.max()) + 1, graph.moved_bytes[sender], (source, target)
    by_link, latency = sent / cluster.bandwidth[link], cluster.latency[link]
    most = np.array([device.collective_bytes_per_second for device in cluster.devices])
    (channels, of_channel), (devices, of_device) = (
        distinct_pairs(np.stack([group, each], axis=1)) for each in (cluster.links[link], source)
    )
    busy, steps, longest = np.zeros(groups), np.zeros(groups), np.zeros(groups)
    np.maximum.at(busy, channels[:, 0], np.bincount(of_channel, by_link))
    np.maximum.at(busy, devices[:, 0], np.bincount(of_device, sent / most[source]))
    np.maximum.at(steps, devices[:, 0], np.bincount(of_device))
    np.maximum.at(longest, group, latency)
    taken = np.bincount(of_channel, by_link + latency)[of_channel]  # by transfers of its channel, one by one
    late = 0.0 if host is None else host.lateness(np.bincount(devices[:, 0], minlength=groups))
    seconds = collective_seconds(steps * longest, busy, late)[group]
    times = np.divide(seconds, taken, out=np.ones(len(taken)), where=taken > 0)
    pace[sender] = 0.0
    np.maximum.at(pace, sender, times)


def _is_exchange(group: Ints, source: Ints, target: Ints) -> Bools:
    """(groups,) whether the devices that send are those that receive."""
    sides = [distinct_pairs(np.stack([group, each], axis=1))[0] for each in (source, target)]
    both = distinct_pairs(np.concatenate(sides))[0]
    senders, receivers, members = (np.bincount(pairs[:, 0]) for pairs in (*sides, both))
    found: Bools = (senders == members) & (receivers == members)
    return found
