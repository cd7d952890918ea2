"""Links between sets of devices: seconds of sending an output from one stage to the next, and of summing gradients."""

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from envs.expansion.servers import by_server
from graphs.cluster import FREE, Cluster


class SendingCost(NamedTuple):
    """Seconds of sending: a latency, and seconds for each byte of a micro-batch."""

    latency: float
    per_byte: float
    busy: float  # the same, of the busiest channel; replicas that take turns use several one after the other


class LinksBetween:
    """The links of a cluster between sets of devices; each set is looked at once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.sending = cache(self._sending)
        self.taking_turns = cache(self._taking_turns)
        self.summing = cache(self._summing)
        self.copying = cache(self._copying)

    def _sending(self, senders: tuple[int, ...], receivers: tuple[int, ...]) -> SendingCost:
        """Of an output of which each sender has an equal part, and each receiver needs one.

            senders     |     0     |     1     |     2     |
            receivers   |        0        |        1        |

        Channels work at the same time, so the busiest one counts.
        """
        ends = (np.arange(len(several) + 1) / len(several) for several in (senders, receivers))
        (begin, end), (first, last) = ((each[:-1], each[1:]) for each in ends)
        overlap = np.minimum(end[:, None], last) - np.maximum(begin[:, None], first)
        pairs = [
            (senders[i], receivers[j], float(overlap[i, j]))
            for i, j in np.argwhere(overlap > 1e-9).tolist()
            if senders[i] != receivers[j]
        ]
        return self._busiest(pairs)

    def _taking_turns(self, senders: tuple[int, ...], receivers: tuple[int, ...]) -> SendingCost:
        """Of whole micro-batches, each from the sender whose turn it is to the receiver whose turn it is."""
        count = math.lcm(len(senders), len(receivers))
        pairs = [(senders[turn % len(senders)], receivers[turn % len(receivers)], 1.0) for turn in range(count)]
        pairs = [pair for pair in pairs if pair[0] != pair[1]]
        alone = [self._busiest([pair]) for pair in pairs]
        latency, per_byte = (max((link[part] for link in alone), default=0.0) for part in (0, 1))
        return SendingCost(latency, per_byte, self._busiest(pairs).busy / count)

    def _summing(self, replicas: tuple[int, ...]) -> SendingCost:
        """Of a ring all-reduce of gradients over replicas."""
        count = len(replicas)
        if count == 1:
            return SendingCost(0.0, 0.0, 0.0)
        order = [replicas[position] for position in by_server(self._cluster, replicas)[0].tolist()]
        step = self._busiest(
            [(one, other, 1 / count) for one, other in zip(order, [*order[1:], order[0]], strict=True)]
        )
        return SendingCost(*(2 * (count - 1) * each for each in step))

    def _copying(self, senders: tuple[int, ...], receivers: tuple[int, ...]) -> SendingCost:
        """Of something whole to each receiver, from itself if it has it or from the sender in the same place.

        Seconds for each byte are those of one copy, and of all on the busiest channel.
        """
        place = [number * len(senders) // len(receivers) for number in range(len(receivers))]
        pairs = [(senders[at], each, 1.0) for at, each in zip(place, receivers, strict=True) if each not in senders]
        alone = [self._busiest([pair]) for pair in pairs]
        latency, per_byte = (max((link[part] for link in alone), default=0.0) for part in (0, 1))
        return SendingCost(latency, per_byte, self._busiest(pairs).busy)

    def _busiest(self, pairs: Sequence[tuple[int, int, float]]) -> SendingCost:
        """Of transfers at the same time: source, destination and share of the bytes of each."""
        cluster, busy, latency = self._cluster, dict[int, float](), 0.0
        for number, (source, target, share) in enumerate(pairs):
            channel = int(cluster.channel[source, target])
            key = channel if channel != FREE else -2 - number
            busy[key] = busy.get(key, 0.0) + share / float(cluster.bandwidth[source, target])
            latency = max(latency, float(cluster.latency[source, target]))
        busiest = max(busy.values(), default=0.0)
        return SendingCost(latency, busiest, busiest)
