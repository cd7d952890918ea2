"""Layout: a problem laid out for roll-outs that place one unit after another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from envs.bounds import path_bound, work_bound
from envs.costs.costs import Costs
from envs.held_memory import HeldMemory
from graphs.cluster import FREE, Cluster
from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase
from graphs.problem import Problem
from placers.heft import link_costs, upward_ranks

STATIC_FEATURES = ("seconds", "speed", "memory", "memory_need", "outgoing", "share", "is_cpu")
"""What is known of a unit on a device before anything is placed; all are logarithms but the last two."""


class Layout(NamedTuple):
    """What all roll-outs of a problem share. Seconds include launches; inputs are those of the forward pass."""

    order: Ints  # (units,) in which units are placed
    op_start: Ints  # (units + 1,) where the forward ops of each unit begin, in `ops`
    ops: Ints  # (forward ops,) by unit, then topologically
    inside_start: Ints  # (ops + 1,) where the producers of each op begin, in `producers`
    producers: Ints  # (forward edges,)
    input_start: Ints  # (units + 1,) where the inputs of each unit begin, in `inputs`
    inputs: Ints  # (inputs,) ops of other units that feed the unit, each once
    carries: Bools  # (inputs,) whether the input is sent, or only awaited (a control edge)
    input_bytes: Floats  # (inputs,) that are sent: of the output, and of messages if there are some
    unit: Ints  # (ops,)
    early: Floats  # (ops,) seconds, the earliest finish without transfers
    op_seconds: Floats  # (ops, devices)
    unit_seconds: Floats  # (units, devices) of all phases
    rank: Floats  # (units,) seconds of the longest path from the unit to the end of the step
    link_start: Ints  # (units + 1,) where the neighbours of each unit begin
    neighbour: Ints  # (2 x links,) unit
    link_bytes: Floats  # (2 x links,) bytes that pass if the two are apart, in all phases
    linked_bytes: Floats  # (units,) of all links of a unit
    held_start: Ints  # (units + 1,) where the tensors that each unit holds begin, in `held`
    held: Ints  # (holders,) tensor
    tensor_bytes: Floats  # (tensors,)
    held_bytes: Floats  # (units,) of all tensors that a unit holds
    limits: Floats  # (devices,) bytes
    latency: Floats  # (devices, devices) seconds, 0 within a device
    per_byte: Floats  # (devices, devices) seconds per byte, 0 within a device
    channel: Ints  # (devices, devices) as `Cluster.links`
    channels: int
    same: Ints  # (devices,) the first device that this one could change places with
    static: np.ndarray  # (units, devices, len(STATIC_FEATURES)) float32
    share: Floats  # (units,) of all the work
    fair: float  # seconds of work per device if all had equally much
    need: float  # bytes of all held tensors
    scale: float  # seconds: the lower bound of the step

    @classmethod
    def of(cls, problem: Problem, costs: Costs, order: str = "longest_path") -> Layout:
        """The layout of a problem under the given costs; units are placed by "longest_path", or "topological"."""
        graph, cluster = problem.graph, problem.cluster
        seconds = costs.busy_seconds(cluster)
        ranks = np.zeros(graph.num_units)
        np.maximum.at(ranks, graph.units, upward_ranks(graph, cluster, seconds, graph.carried_bytes))
        place = np.empty(len(graph), np.int64)
        place[graph.topological_order] = np.arange(len(graph))
        forward = graph.topological_order[graph.phase[graph.topological_order] == Phase.FORWARD]
        ops = forward[np.argsort(graph.units[forward], kind="stable")]
        inside = graph.edges[(graph.phase[graph.edges] == Phase.FORWARD).all(axis=1)]
        inside = inside[np.argsort(inside[:, 1], kind="stable")]
        readers, inputs, carries, input_bytes = _inputs(graph, place)
        units, unit_seconds = problem.units, problem.units.summed(seconds)
        link_start, neighbour, links = units.neighbours
        held = HeldMemory.of(problem)
        holder, tensor = held.holders.T
        latency, per_byte = link_costs(cluster)
        apart = ~np.eye(len(cluster), dtype=np.bool_)
        return cls(
            units.order if order == "topological" else np.lexsort((units.first_position, -ranks)),
            starts(graph.units[ops], graph.num_units), ops,
            starts(inside[:, 1], len(graph)), np.ascontiguousarray(inside[:, 0]),
            starts(readers, graph.num_units), inputs, carries, input_bytes, np.array(graph.units),
            _early(graph, seconds.mean(axis=1)), np.ascontiguousarray(seconds), unit_seconds, ranks,
            link_start, neighbour, units.link_bytes[links],
            _summed(units.links.ravel(), np.repeat(units.link_bytes, 2), graph.num_units),
            starts(holder, graph.num_units), np.ascontiguousarray(tensor), held.tensor_bytes,
            _summed(holder, held.tensor_bytes[tensor], graph.num_units), held.limits, latency, per_byte,
            np.where(apart, cluster.links, 0), int(cluster.links[apart].max(initial=0)) + 1,
            interchangeable(cluster, seconds),
            _static(cluster, unit_seconds, held),
            unit_seconds.sum(axis=1) / max(unit_seconds.sum(), 1e-30),
            float(unit_seconds.sum()) / len(cluster) ** 2, float(held.tensor_bytes.sum()),
            max(path_bound(problem, costs.op_seconds), work_bound(problem, costs.op_seconds), 1e-12),
        )  # fmt: skip


def starts(key: Ints, count: int) -> Ints:
    """(count + 1,) where each key begins in an array sorted by it."""
    return np.searchsorted(key, np.arange(count + 1)).astype(np.int64)


def _summed(unit: Ints, values: Floats, units: int) -> Floats:
    """(units,) sums of the values of each unit."""
    return np.bincount(unit, weights=values, minlength=units).astype(np.float64)


def interchangeable(cluster: Cluster, seconds: Floats) -> Ints:
    """(devices,) the first device that could change places with this one and nobody would notice; itself if none.

    `seconds` is (ops, devices). Two devices can if they are equal and, once they are swapped, every pair of devices
    has the link it had and shares its channel with the same pairs.
    """
    count = len(cluster)
    same = np.arange(count)
    for one in range(count):
        for other in range(one):
            if same[other] == other and _swappable(cluster, seconds, one, other):
                same[one] = other
                break
    return same


def renamed_by_use(layout: Layout, placement: Ints) -> Ints:
    """(units,) the placement with equal devices renamed: in the layout's order, of the empty ones the first comes next.

    To any two devices that can change places nobody can tell the difference.
    """
    names: dict[int, int] = {}
    taken: set[int] = set()
    for unit in layout.order:
        device = int(placement[unit])
        if device not in names:
            alike = (other for other in range(len(layout.same)) if layout.same[other] == layout.same[device])
            names[device] = next(other for other in alike if other not in taken)
            taken.add(names[device])
    return np.array([names[int(device)] for device in placement], np.int64)


def _swappable(cluster: Cluster, seconds: Floats, one: int, other: int) -> bool:
    if cluster.memory_bytes[one] != cluster.memory_bytes[other] or (seconds[:, one] != seconds[:, other]).any():
        return False
    turned = np.arange(len(cluster))
    turned[[one, other]] = other, one
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    before, after = cluster.channel[apart], cluster.channel[np.ix_(turned, turned)][apart]
    renamed = np.unique(np.stack([before, after], axis=1), axis=0)  # a renaming of channels pairs each with one
    serial = renamed[(renamed != FREE).all(axis=1)]
    return (
        all((m[apart] == m[np.ix_(turned, turned)][apart]).all() for m in (cluster.latency, cluster.bandwidth))
        and len(renamed) == len(np.unique(before)) == len(np.unique(after))
        and ((renamed[:, 0] == FREE) == (renamed[:, 1] == FREE)).all()
        and (cluster.gap[serial[:, 0]] == cluster.gap[serial[:, 1]]).all()
        and (cluster.multicast[serial[:, 0]] == cluster.multicast[serial[:, 1]]).all()
    )


def _inputs(graph: OpGraph, place: Ints) -> tuple[Ints, Ints, Bools, Floats]:
    """Reading unit, input, whether it is sent and how many bytes, (inputs,) each; by unit, then topologically."""
    ahead = (graph.phase[graph.edges] == Phase.FORWARD).all(axis=1)
    ahead &= graph.units[graph.edges[:, 0]] != graph.units[graph.edges[:, 1]]
    producer, reader, control = graph.edges[ahead, 0], graph.units[graph.edges[ahead, 1]], graph.control[ahead]
    output, carried = graph.edge_output[ahead], graph.carried_bytes[ahead]
    order = np.lexsort((output, control, place[producer], reader))  # of a pair's edges, those that carry come first
    producer, reader, control, output = producer[order], reader[order], control[order], output[order]
    fresh, another = np.ones(len(order), np.bool_), np.ones(len(order), np.bool_)
    fresh[1:] = (np.diff(reader) != 0) | (np.diff(producer) != 0)
    another[1:] = fresh[1:] | (np.diff(output) != 0)  # an output is sent once, each message for itself
    sent = np.bincount(np.cumsum(fresh) - 1, weights=np.where(another, carried[order], 0.0))
    return reader[fresh], producer[fresh], ~control[fresh], sent.astype(np.float64)


def _early(graph: OpGraph, seconds: Floats) -> Floats:
    finish = np.zeros(len(graph))
    offsets, edges = graph.predecessors
    producers = graph.edges[edges, 0]
    for op in graph.topological_order.tolist():
        finish[op] = seconds[op] + finish[producers[offsets[op] : offsets[op + 1]]].max(initial=0.0)
    return finish


def _static(cluster: Cluster, seconds: Floats, held: HeldMemory) -> np.ndarray:
    """(units, devices, len(STATIC_FEATURES)) float32; seconds are those of (units, devices)."""
    count = len(cluster)
    work, total = seconds.mean(axis=1, keepdims=True), seconds.sum(axis=0)
    need = max(float(held.per_unit.sum()), 1.0)
    memory = np.clip(held.limits, 1.0, 1e3 * need)  # memory without end is no feature
    apart = ~np.eye(count, dtype=np.bool_)
    outgoing = np.where(apart, np.minimum(cluster.bandwidth, 1e15), 0.0).sum(axis=1) / max(count - 1, 1) + 1e-12
    per_device = np.stack(
        [
            np.log((total.mean() + 1e-12) / (total + 1e-12)),
            np.log(memory / memory.mean()),
            np.log(memory / need) / 4,
            np.log(outgoing / outgoing.mean()),
            np.full(count, 1 / count),
            cluster.is_cpu,
        ],
        axis=1,
    )
    relative = np.log((seconds + 1e-12) / (work + 1e-12))[:, :, None]
    spread = np.broadcast_to(per_device, (*seconds.shape, per_device.shape[1]))
    return np.ascontiguousarray(np.concatenate([relative, spread], axis=2), np.float32)
