"""DAPPLE's released planner, whose formulas differ from those of the paper.

It knows three links of fixed speed, and compares pipelines of three kinds: one stage on all devices; copies of straight
pipelines, of two stages or of as many as devices; and all pipelines of two stages. P copies of a pipeline share the
batch: each computes 1 / P of it, over links of its own. Its step is

    L = (M - 1) b / M + T / (P M) + sum_i send_i / (P M) + max(0, max_i (AR_i - i b / M))

where T is the time of all layers, b that of the slowest stage or transfer, and AR_i the all-reduce of stage i, to which
the first layer of the next stage counts too, as in the program. Memory does not count. Source:
github.com/AlibabaPAI/DAPPLE, a program in Rust; what is here is written from its formulas.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from envs.pipelines.layers import Layers
from graphs.op_graph import Floats, Ints
from placers.pipelines.published.device_policies import Counts
from placers.pipelines.published.pipeline import Pipeline, Stage
from placers.pipelines.published.servers import Servers

ETHERNET = 5e9  # bytes/s; ours: where all links are alike and slower than this, each device is a server


@dataclass(frozen=True)
class Rates:
    """Speeds of the links that the program knows, in bytes/s."""

    point_to_point: float = 1e9  # between servers
    collective: float = 3e9  # of collective operations between servers
    within: float = 25e9  # NVLink


RATES = Rates()

_Key = tuple[Counts, Counts]  # devices that stages use, and those of the last of them


@dataclass(frozen=True, eq=False)
class _Reached:
    """Stages on a set of devices, by the layer at which they end."""

    slowest: Floats  # (layers + 1,) the slowest stage or transfer
    begin: Ints  # (layers + 1,) of the last stage
    before: list[_Key | None]  # (layers + 1,) what that was added to


@dataclass(frozen=True, eq=False)
class DappleProgram:
    """The program, for layers and servers."""

    layers: Layers
    sizes: Counts  # (servers,) devices of each
    fixed: int  # micro-batches of every pipeline, or 0
    parts: int  # of the batch, one of which is a micro-batch of a copy; read if `fixed` is 0
    rates: Rates = RATES
    shared: int = 0  # samples of a micro-batch, which the replicas of every stage divide if they can; 0: any number

    def planned(self) -> Pipeline:
        """The pipeline with the least step by its formula, the first of several."""
        found = list(self._candidates())
        dividing = [each for each in found if not any(self.shared % stage.replicas for stage in each.stages)]
        return min(dividing or found, key=lambda pipeline: pipeline.seconds)

    def _candidates(self) -> Iterator[Pipeline]:
        devices = sum(self.sizes)
        if devices == 1:
            yield self._judged((Stage(0, len(self.layers), self.sizes),), 1, self.total)
            return
        for length in range(2, devices + 1):
            copies = devices // length
            given = _fresh(self.sizes, (0,) * len(self.sizes), length * copies)
            yield self._judged((Stage(0, len(self.layers), given),), copies, self.total / (length * copies))
        for length in {2, devices} if devices % 2 == 0 else {devices}:
            yield from self._straight(length, devices // length)
        yield from self._of_two_stages()

    @cached_property
    def seconds(self) -> Floats:
        """(layers + 1,) of the layers before each, forward and backward."""
        return np.concatenate([[0.0], np.cumsum(self.layers.forward + self.layers.backward)])

    @property
    def total(self) -> float:
        """Seconds of all layers."""
        return float(self.seconds[-1])

    def _judged(self, stages: tuple[Stage, ...], copies: int, slowest: float) -> Pipeline:
        """The pipeline with its step; impossible if the batch has fewer parts than copies."""
        micro_batches = self.fixed or self.parts // copies
        if not micro_batches:
            return Pipeline(stages, 1, np.inf, 0.0)
        block, shares = slowest / micro_batches, copies * micro_batches
        step = block * (micro_batches - 1) + self.total / shares
        weights, last = np.concatenate([[0.0], np.cumsum(self.layers.weights)]), len(self.layers)
        late = 0.0
        for number, stage in enumerate(stages):
            if number:
                sent = float(self.layers.sent[stage.first - 1]) / shares
                step += send_seconds(stages[number - 1].counts, stage.counts, sent, self.rates)
            summed = float(weights[min(stage.end + 1, last)] - weights[stage.first])
            late = max(late, sum_seconds(stage.counts, summed, self.rates) - number * block)
        return Pipeline(stages, micro_batches, step + late, 0.0)

    def _of_two_stages(self) -> Iterator[Pipeline]:
        nothing = (0,) * len(self.sizes)
        for wanted in range(1, sum(self.sizes)):
            for first in _choices(self.sizes, nothing, wanted):
                for second in _choices(self.sizes, first, sum(self.sizes) - wanted):
                    for cut in range(1, len(self.layers)):
                        slowest = max(
                            self.seconds[cut] / sum(first),
                            (self.total - self.seconds[cut]) / sum(second),
                            send_seconds(first, second, float(self.layers.sent[cut - 1]), self.rates),
                        )
                        stages = (Stage(0, cut, first), Stage(cut, len(self.layers), second))
                        yield self._judged(stages, 1, float(slowest))

    def _straight(self, length: int, copies: int) -> Iterator[Pipeline]:
        """The pipeline of `length` stages, a device each in every copy, whose slowest stage or transfer is fastest."""
        count = len(self.layers)
        if length > count:
            return
        time = self.seconds / copies
        apart = np.where(np.tri(count + 1, dtype=np.bool_).T, time[None, :] - time[:, None], np.inf)  # (first, end)
        np.fill_diagonal(apart, np.inf)
        first = _fresh(self.sizes, (0,) * len(self.sizes), copies)
        # of each set of devices used, with those of the last stage: by where the stages end, the best
        levels = [{(first, first): _Reached(apart[0], np.zeros(count + 1, np.int64), [None] * (count + 1))}]
        for _ in range(1, length):
            levels.append(self._extended(levels[-1], apart, copies))
        key, reached = min(levels[-1].items(), key=lambda item: item[1].slowest[count])
        slowest, stages, end = float(reached.slowest[count]), list[Stage](), count
        for level in levels[::-1]:
            begin = int(level[key].begin[end])
            stages.append(Stage(begin, end, key[1]))
            key, end = level[key].before[end] or key, begin
        yield self._judged(tuple(stages[::-1]), copies, slowest)

    def _extended(self, level: dict[_Key, _Reached], apart: Floats, copies: int) -> dict[_Key, _Reached]:
        """What one more stage leads to."""
        longer: dict[_Key, _Reached] = {}
        cuts = np.concatenate([[0.0], 2 * self.layers.sent[:-1], [0.0]])  # bytes both ways
        for key, reached in level.items():
            used, last = key
            for given in _one_by_one(self.sizes, used, copies):
                sending = send_seconds(last, given, 1.0, self.rates) * cuts
                slowest = np.maximum(apart, np.maximum(reached.slowest, sending)[:, None])
                begin = slowest.argmin(axis=0)
                least = slowest[begin, np.arange(len(begin))]
                now = (tuple(np.add(used, given).tolist()), given)
                if now not in longer:
                    longer[now] = _Reached(least, begin, [key] * len(begin))
                    continue
                for end in np.flatnonzero(least < longer[now].slowest).tolist():
                    longer[now].slowest[end], longer[now].begin[end] = least[end], begin[end]
                    longer[now].before[end] = key
        return longer


def machines_of(servers: Servers) -> Servers:
    """The servers as the program would be told of them: where all links are of a network, each device is one."""
    if len(servers.devices) == 1 and servers.links.within_bandwidth < ETHERNET:
        return replace(servers, devices=tuple((device,) for device in servers.devices[0]))
    return servers


def sum_seconds(counts: Counts, summed: float, rates: Rates = RATES) -> float:
    """Seconds of an all-reduce of `summed` bytes among `counts` devices of each server."""
    devices, used = sum(counts), sum(count > 0 for count in counts)
    if devices == 1:
        return 0.0
    exchanged = 2 * summed * (devices - 1) / devices
    return exchanged / rates.collective if used > 1 else exchanged / rates.within / (devices // 2)


def send_seconds(senders: Counts, receivers: Counts, sent: float, rates: Rates = RATES) -> float:
    """Seconds to send `sent` bytes on, between these numbers of devices of each server."""
    if sum(count > 0 for count in receivers) > 1:
        return sent / rates.collective
    remote = sum(here for here, there in zip(senders, receivers, strict=True) if not there)
    return sent * remote / sum(senders) / rates.point_to_point if remote else sent / rates.within


def _fresh(sizes: Counts, used: Counts, wanted: int) -> Counts:
    """Devices of servers that are not used at all, in order; fewer than wanted if they have fewer."""
    taken, left = [0] * len(sizes), wanted
    for server, size in enumerate(sizes):
        if not used[server]:
            taken[server] = min(size, left)
            left -= taken[server]
    return tuple(taken)


def _append(sizes: Counts, used: Counts, wanted: int) -> Counts:
    """Devices of servers that are used in part."""
    taken, left = [0] * len(sizes), wanted
    for server, size in enumerate(sizes):
        if used[server]:
            taken[server] = min(size - used[server], left)
            left -= taken[server]
    return tuple(taken)


def _scatter(sizes: Counts, used: Counts, wanted: int) -> Counts:
    """A device of each server with free ones, in turns."""
    taken = [0] * len(sizes)
    while sum(taken) < wanted:
        for server, size in enumerate(sizes):
            if used[server] + taken[server] < size and sum(taken) < wanted:
                taken[server] += 1
    return tuple(taken)


def _choices(sizes: Counts, used: Counts, wanted: int) -> list[Counts]:
    """What each policy gives, without those that have too few devices and without repetition."""
    chosen = (policy(sizes, used, wanted) for policy in (_fresh, _append, _scatter))
    return list(dict.fromkeys(counts for counts in chosen if sum(counts) == wanted))


def _one_by_one(sizes: Counts, used: Counts, wanted: int) -> list[Counts]:
    """What the policies give who are asked for one device at a time."""
    nothing = (0,) * len(sizes)
    reached = {nothing: None}
    for _ in range(wanted):
        reached = {
            tuple(np.add(taken, one).tolist()): None
            for taken in reached
            for one in _choices(sizes, tuple(np.add(used, taken).tolist()), 1)
        }
    return list(reached)
