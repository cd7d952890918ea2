"""Replica counts: how many devices of a row each stage gets, with the cuts, by shortest paths.

A row of devices is divided into consecutive sets, and the layers into as many stages; both are chosen at once. As for
given sets (`placers.pipelines.cuts`), paths of least time for one micro-batch are looked for among those whose slowest
stage keeps to a bound, for several bounds:

    best[devices, layers] = min over (count, first) of best[devices - count, first] + time of the stage

What is sent to a stage is taken to come from as many devices as it has. So the sets are proposals; the formula that
knows both ends of each transfer, memory, and replicas that take turns, is asked about each.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from envs.simulation.compiled import compiled, inlined
from graphs.op_graph import Floats, Ints
from placers.pipelines.cuts import BOUNDS
from placers.pipelines.links_between import LinksBetween
from placers.pipelines.places import Sets
from placers.pipelines.stage_costs import Devices, StageCosts


class DeviceRow(NamedTuple):
    """Devices in a row; (devices + 1, counts) arrays are of the last devices before a position, by how many."""

    kind: Ints  # (devices,)
    strength: Floats  # (devices,) what each does in the same time
    counts: Ints  # (counts,) of replicas that divide the samples
    per_byte: Floats  # (devices + 1,) seconds to send to the device at a position from the one before it
    latency: Floats
    sum_per_byte: Floats  # (devices + 1, counts) seconds to add up gradients
    sum_latency: Floats


class DivisionTables(NamedTuple):
    """Buffers, overwritten by every call: (devices + 1, layers + 1) each."""

    best: Floats
    taken: Ints  # devices of the last stage
    first: Ints  # its first layer


@inlined
def _seconds(
    costs: StageCosts, row: DeviceRow, end: int, which: int, layers: tuple[int, int], micro_batches: int
) -> tuple[float, float]:
    """Of a stage whose devices end at a position: one micro-batch, sending included; and of each one of many."""
    count = row.counts[which]
    computing, update = 0.0, 0.0
    first, last = layers
    together = 0.0
    for position in range(end - count, end):
        together += row.strength[position]
    for position in range(end - count, end):
        kind = row.kind[position]
        if position > end - count and kind == row.kind[position - 1]:
            continue
        share = row.strength[position] / (together * micro_batches)
        on = (costs.forward[kind, last] - costs.forward[kind, first]) * share
        on += costs.forward_fixed[kind, last] - costs.forward_fixed[kind, first]
        on += (costs.backward[kind, last] - costs.backward[kind, first]) * share
        on += costs.backward_fixed[kind, last] - costs.backward_fixed[kind, first]
        computing = max(computing, on)
        update = max(update, costs.update[kind, last] - costs.update[kind, first])
    if count > 1:
        summed = costs.weights[last] - costs.weights[first]
        update += row.sum_latency[end, which] + row.sum_per_byte[end, which] * summed
    sending, both = 0.0, 0.0
    for size in (costs.entering[first, last], costs.leaving[first, last]):
        if size > 0:
            one = row.latency[end - count] + row.per_byte[end - count] * size * (1.0 / (count * micro_batches))
            sending, both = max(sending, one), both + one
    return computing + both, max(computing + update / micro_batches, sending)


@compiled
def divide(costs: StageCosts, row: DeviceRow, micro_batches: int, bound: float, tables: DivisionTables) -> float:
    """Write the best division of devices and layers for each number of them; returns the best value of all layers.

    It is the time of one micro-batch; without a bound, infinite, it is that of the slowest stage. Infinite if there is
    none.
    """
    devices, layers = len(row.kind), costs.forward.shape[1] - 1
    tables.best[:] = np.inf
    tables.best[0, 0] = 0.0
    least = np.inf
    for end in range(1, devices + 1):
        for last in range(1, layers + 1):
            for which in range(len(row.counts)):
                before = end - row.counts[which]
                if before < 0:
                    continue
                for first in range(last - 1, -1, -1):
                    if tables.best[before, first] == np.inf:
                        continue
                    once, slowest = _seconds(costs, row, end, which, (first, last), micro_batches)
                    if slowest > bound:
                        continue
                    value = tables.best[before, first]
                    value = max(value, slowest) if bound == np.inf else value + once
                    if value < tables.best[end, last]:
                        tables.best[end, last] = value
                        tables.taken[end, last], tables.first[end, last] = row.counts[which], first
        least = min(least, tables.best[end, layers])
    return float(least)


def divided(
    costs: StageCosts, devices: Devices, links: LinksBetween, several: Sequence[int], micro_batches: int, samples: int
) -> Iterator[Sets]:
    """Sets of devices of a row, those for tight bounds first; some of them may be alike."""
    row = row_of(devices, links, several, micro_batches, samples)
    shape = len(several) + 1, costs.forward.shape[1]
    tables = DivisionTables(np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, np.int64))
    slowest = divide(costs, row, micro_batches, np.inf, tables)
    for bound in [np.inf, *BOUNDS.tolist()]:
        if np.isfinite(divide(costs, row, micro_batches, bound * slowest * (1 + 1e-9), tables)):
            yield _sets(tables, several)


def row_of(
    devices: Devices, links: LinksBetween, several: Sequence[int], micro_batches: int, samples: int
) -> DeviceRow:
    """A row of these devices; the replicas of each stage divide the samples, if it is known how many there are."""
    counts = [count for count in range(1, len(several) + 1) if samples % (count * micro_batches) == 0]
    if not samples:
        counts = [1 << power for power in range(len(several).bit_length())]
    sending = np.zeros((2, len(several) + 1))
    for position, (one, other) in enumerate(pairwise(several), 1):
        latency, per_byte, busy = links.sending((one,), (other,))
        sending[:, position] = latency, max(per_byte, busy)
    summing = np.zeros((2, len(several) + 1, len(counts)))
    for which, count in enumerate(counts):
        for end in range(count, len(several) + 1):
            latency, per_byte, _ = links.summing(tuple(several[end - count : end]))
            summing[:, end, which] = latency, per_byte
    return DeviceRow(
        devices.kind[list(several)],
        devices.strength[devices.kind[list(several)]],
        np.array(counts, np.int64),
        sending[1],
        sending[0],
        summing[1],
        summing[0],
    )


def _sets(tables: DivisionTables, several: Sequence[int]) -> Sets:
    """The sets of the best division, of however many of the devices."""
    end, last = int(tables.best[:, -1].argmin()), tables.best.shape[1] - 1
    found = list[tuple[int, ...]]()
    while end:
        count, first = int(tables.taken[end, last]), int(tables.first[end, last])
        found.append(tuple(several[end - count : end]))
        end, last = end - count, first
    return tuple(found[::-1])
