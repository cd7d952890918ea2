"""Pipelines of layers: consecutive stages on sets of devices, and what each stage costs for a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from envs.pipelines.layers import Layers, sums_before
from envs.simulation.compiled import compiled, subroutine
from graphs.op_graph import Floats, Ints
from placers.pipelines.published.latency import latency
from placers.pipelines.published.servers import ServerLinks, send_seconds, sum_seconds


@dataclass(frozen=True)
class Stage:
    """Consecutive layers, and how many devices of each server share each micro-batch of them."""

    first: int
    end: int  # the first layer that is not in it
    counts: tuple[int, ...]  # (servers,)

    @property
    def replicas(self) -> int:
        """How many devices it has."""
        return sum(self.counts)


@dataclass(frozen=True)
class Pipeline:
    """A pipeline, and what is known of it by formula."""

    stages: tuple[Stage, ...]
    micro_batches: int
    seconds: float  # of a step
    overflow: float  # bytes that its stages lack on each of their devices


class Chain(NamedTuple):
    """Layers for compiled code: sums over the layers before each, (layers + 1,), and bytes at each cut."""

    forward: Floats
    backward: Floats
    forward_fixed: Floats
    backward_fixed: Floats
    update: Floats
    weights: Floats
    held: Floats
    kept: Floats
    sent: Floats  # (layers,) after each layer
    returned: Floats  # (layers,)
    limit: float  # bytes of a device

    @classmethod
    def of(cls, layers: Layers, limit: float) -> Chain:
        """What `Layers` says of each; `limit` is the memory of the smallest device."""
        return cls(
            sums_before(layers.forward),
            sums_before(layers.backward),
            sums_before(layers.forward_fixed),
            sums_before(layers.backward_fixed),
            sums_before(layers.update),
            sums_before(layers.weights),
            sums_before(layers.held),
            sums_before(layers.kept),
            layers.sent,
            layers.returned,
            limit,
        )


class Entries(NamedTuple):
    """Stages of computing and of sending in turn, as `latency` reads them; overwritten by every pipeline."""

    forward: Floats
    backward: Floats
    all_reduce: Floats
    held: Floats  # bytes on each device of a stage
    kept: Floats  # bytes that a micro-batch in flight keeps there
    entered: Floats  # bytes of them that enter the stage

    @classmethod
    def empty(cls, stages: int) -> Entries:
        """Arrays for `stages` stages, to be filled."""
        return cls(*(np.zeros(2 * stages) for _ in range(6)))


@subroutine
def fill_stage(
    given: Chain,
    links: ServerLinks,
    first: int,
    end: int,
    replicas: Ints,
    micro_batches: int,
    recompute: bool,
    to: Entries,
    at: int,
) -> None:
    """Write what a stage of computing costs."""
    count = 0
    for server in range(len(replicas)):
        count += replicas[server]
    share = 1 / (count * micro_batches)
    fixed = given.forward_fixed[end] - given.forward_fixed[first]
    to.forward[at] = (given.forward[end] - given.forward[first]) * share + fixed
    fixed = given.backward_fixed[end] - given.backward_fixed[first]
    to.backward[at] = (given.backward[end] - given.backward[first]) * share + fixed
    if recompute:
        to.backward[at] += to.forward[at]
    wait, each = sum_seconds(links, replicas)
    summed = given.weights[end] - given.weights[first]
    to.all_reduce[at] = given.update[end] - given.update[first] + (wait + each * summed if summed > 0 else 0.0)
    to.held[at] = given.held[end] - given.held[first]
    to.kept[at] = (given.kept[end] - given.kept[first]) * share
    to.entered[at] = given.sent[first - 1] * share if first > 0 else 0.0


@subroutine
def fill_sending(
    given: Chain,
    links: ServerLinks,
    first: int,
    senders: Ints,
    receivers: Ints,
    micro_batches: int,
    to: Entries,
    at: int,
) -> None:
    """Write what it costs to send a micro-batch to the stage that begins with layer `first`, and back."""
    wait, each = send_seconds(links, senders, receivers)
    to.forward[at] = wait + each * given.sent[first - 1] / micro_batches if given.sent[first - 1] > 0 else 0.0
    wait, each = send_seconds(links, receivers, senders)
    to.backward[at] = wait + each * given.returned[first - 1] / micro_batches if given.returned[first - 1] > 0 else 0.0
    to.all_reduce[at] = 0.0


@subroutine
def overflow_of(given: Chain, stages: int, micro_batches: int, recompute: bool, of: Entries) -> float:
    """Bytes that the devices of all stages lack, where stage i of S has min(S - i, M) micro-batches in flight."""
    total = 0.0
    for stage in range(stages):
        flying, at = min(stages - stage, micro_batches), 2 * stage
        kept = of.entered[at] * flying + of.kept[at] if recompute else of.kept[at] * flying
        total += max(of.held[at] + kept - given.limit, 0.0)
    return total


@compiled
def _estimate(
    given: Chain,
    links: ServerLinks,
    bounds: Ints,
    replicas: Ints,
    micro_batches: int,
    recompute: bool,
    corrected: bool,
    entries: Entries,
) -> tuple[float, float]:
    """Seconds and overflow; `bounds`, (stages + 1,), and `replicas`, (stages, servers), say what the stages are."""
    stages = len(bounds) - 1
    for stage in range(stages):
        first, end, at = bounds[stage], bounds[stage + 1], 2 * stage
        fill_stage(given, links, first, end, replicas[stage], micro_batches, recompute, entries, at)
        if stage:
            fill_sending(given, links, first, replicas[stage - 1], replicas[stage], micro_batches, entries, at - 1)
    overflow = overflow_of(given, stages, micro_batches, recompute, entries)
    return latency(
        entries.forward, entries.backward, entries.all_reduce, 2 * stages - 1, micro_batches, corrected
    ), overflow


def estimate(
    given: Chain,
    links: ServerLinks,
    stages: tuple[Stage, ...],
    micro_batches: int,
    *,
    recompute: bool = False,
    corrected: bool = False,
) -> Pipeline:
    """What a pipeline costs by equations 1 to 3."""
    bounds = np.array([*(stage.first for stage in stages), stages[-1].end], np.int64)
    replicas = np.array([stage.counts for stage in stages], np.int64)
    seconds, overflow = _estimate(
        given, links, bounds, replicas, micro_batches, recompute, corrected, Entries.empty(len(stages))
    )
    return Pipeline(stages, micro_batches, seconds, overflow)
