"""Layout: a problem as arrays for roll-outs that place one unit after another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.costs.costs import Costs
from envs.simulation.bounds import bound_of_devices, host_bound
from envs.simulation.held_memory import HeldMemory
from graphs.algorithms.pairs import row_offsets
from graphs.cluster import Cluster
from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase
from graphs.op_graph.paths import earliest_starts
from graphs.problem import Problem
from placers.learned.equal_devices import interchangeable
from placers.learned.features import Column, joined
from placers.learned.sequential.channels import Channels
from placers.learned.sequential.decoder_features import AFTER_STATIC, FEATURES, FIRST_STATIC
from placers.learned.sequential.host_threads import HostThreads, program_position
from placers.learned.sequential.live_outputs import ForwardOps, LiveOutputs
from placers.learned.sequential.totals import Totals
from placers.solvers.list_scheduling import SchedulingTasks, link_costs


class RolloutLayout(NamedTuple):
    """What all roll-outs of a problem share. Seconds include launches; inputs are those of the forward pass.

    Rows of different lengths lie one after another: the inputs of a unit are inputs[input_start[unit] :
    input_start[unit + 1]], and so are its ops, links and held tensors, and the producers of an op.
    """

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
    allowed: Bools  # (units, devices) where each unit may run
    latency: Floats  # (devices, devices) seconds, 0 within a device
    per_byte: Floats  # (devices, devices) seconds per byte, 0 within a device
    channels: Channels
    same: Ints  # (devices,) the first device that this one could change places with
    static: NDArray[np.float32]  # (units, devices, features from FIRST_STATIC to AFTER_STATIC)
    share: Floats  # (units,) of all the work
    fair: float  # seconds of work per device if all had equally much
    need: float  # bytes of all held tensors
    scale: float  # seconds: the lower bound of the step
    host: HostThreads
    totals: Totals
    live: LiveOutputs

    @classmethod
    def of(
        cls, problem: Problem, costs: Costs, order: str = "longest_path", *, live_outputs: bool = False
    ) -> RolloutLayout:
        """The layout of a problem under the given costs; units are placed by "longest_path", or "topological".

        By "runtime" they are placed as its devices run them, if that is program order, and its threads count.
        Memory is that which is held during the step or, with `live_outputs`, that and outputs while they live.
        """
        graph, cluster, units, held = problem.graph, problem.cluster, problem.units, HeldMemory.of(problem)
        count = len(units)
        seconds = costs.busy_seconds(problem)
        unit_seconds = units.summed(seconds)
        allowed = np.ones(unit_seconds.shape, np.bool_) if problem.allowed is None else problem.allowed
        rank = _ranks(problem, seconds)
        forward, carries, input_bytes = _forward_ops(graph)
        link_start, neighbour, links = units.neighbours
        holder, tensor = held.holders.T
        latency, per_byte = link_costs(cluster)
        share = unit_seconds.sum(axis=1) / max(unit_seconds.sum(), 1e-30)
        host, scale = _threads_and_scale(problem, costs, order, unit_seconds.sum(axis=0))
        placed_in = _order(problem, costs, order, rank)
        live = LiveOutputs.of(graph, held, forward, placed_in) if live_outputs else LiveOutputs.none(graph, held)
        return cls(
            order=placed_in,
            op_start=forward.start,
            ops=forward.ops,
            inside_start=row_offsets(forward.edges[:, 1], len(graph)),
            producers=np.ascontiguousarray(forward.edges[:, 0]),
            input_start=row_offsets(forward.readers, count),
            inputs=forward.inputs,
            carries=carries,
            input_bytes=input_bytes,
            unit=np.array(graph.units),
            early=_earliest_finish(graph, seconds.mean(axis=1)),
            op_seconds=np.ascontiguousarray(seconds),
            unit_seconds=unit_seconds,
            rank=rank,
            link_start=link_start,
            neighbour=neighbour,
            link_bytes=units.link_bytes[links],
            linked_bytes=np.bincount(units.links.ravel(), np.repeat(units.link_bytes, 2), count).astype(np.float64),
            held_start=row_offsets(holder, count),
            held=np.ascontiguousarray(tensor),
            tensor_bytes=held.tensor_bytes,
            held_bytes=np.bincount(holder, held.tensor_bytes[tensor], count).astype(np.float64),
            limits=held.limits,
            allowed=allowed,
            latency=latency,
            per_byte=per_byte,
            channels=Channels.of(cluster),
            same=interchangeable(cluster, np.where(allowed[graph.units], seconds, np.inf)),
            static=_static(cluster, unit_seconds, held),
            share=share,
            fair=float(unit_seconds.sum()) / len(cluster) ** 2,
            need=float(held.tensor_bytes.sum()),
            scale=scale,
            host=host,
            totals=Totals.of(problem, held, unit_seconds, share, per_byte, scale),
            live=live,
        )


def _threads_and_scale(problem: Problem, costs: Costs, order: str, alone: Floats) -> tuple[HostThreads, float]:
    """The threads that count, and the lower bound; everything would be busy for `alone`, (devices,), on each device."""
    scale = max(bound_of_devices(problem, costs.op_seconds), 1e-12)
    if order != "runtime":
        return HostThreads.none(len(problem.graph), alone), scale
    return HostThreads.of(problem, costs, alone), max(scale, host_bound(problem, costs.op_seconds))


def _earliest_finish(graph: OpGraph, seconds: Floats) -> Floats:
    """(ops,) without transfers, from the seconds of each."""
    finish: Floats = earliest_starts(graph, seconds) + seconds
    return finish


def _ranks(problem: Problem, seconds: Floats) -> Floats:
    """(units,) that of the most urgent op of each, by the longest path from there to the end of the step."""
    graph, rank = problem.graph, np.zeros(len(problem.units))
    tasks = SchedulingTasks(graph, problem.cluster, seconds, graph.carried_bytes)
    np.maximum.at(rank, graph.units, tasks.upward_ranks())
    return rank


def _order(problem: Problem, costs: Costs, order: str, rank: Floats) -> Ints:
    """(units,) the order in which units are placed, as `RolloutLayout.of`; `rank` is (units,)."""
    program = program_position(problem, costs.op_seconds) if order == "runtime" else None
    if program is not None:
        return program.argsort()
    return problem.units.order if order == "topological" else np.lexsort((problem.units.first_position, -rank))


def renamed_by_use(layout: RolloutLayout, placement: Ints) -> Ints:
    """(units,) the placement with equal devices renamed: in the layout's order, of the empty ones the first comes next.

    With three equal devices, units on 2 2 0 1 0 are then on 0 0 1 2 1, which takes exactly as long.
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


def _forward_ops(graph: OpGraph) -> tuple[ForwardOps, Bools, Floats]:
    """The ops of the forward pass, and of each input whether it is sent and how many bytes, (inputs,)."""
    forward = graph.topological_order[graph.phase[graph.topological_order] == Phase.FORWARD]
    ops = forward[np.argsort(graph.units[forward], kind="stable")]
    edges = graph.edges[(graph.phase[graph.edges] == Phase.FORWARD).all(axis=1)]
    edges = edges[np.argsort(edges[:, 1], kind="stable")]
    readers, inputs, carries, input_bytes = _inputs(graph)
    start = row_offsets(graph.units[ops], graph.num_units)
    return ForwardOps(start, ops, edges, inputs, readers), carries, input_bytes


def _inputs(graph: OpGraph) -> tuple[Ints, Ints, Bools, Floats]:
    """Reading unit, input, whether it is sent and how many bytes, (inputs,) each; by unit, then topologically.

    Edges from an op to the ops of one unit are one input:

        a -> x, a -> y (both read output 0, 8 bytes), a -> x (a message, 2 bytes)    x, y in unit 1
        reader 1, input a, sent, 10 bytes
    """
    crossing = (graph.phase[graph.edges] == Phase.FORWARD).all(axis=1)
    crossing &= graph.units[graph.edges[:, 0]] != graph.units[graph.edges[:, 1]]
    producer, reader, control = graph.edges[crossing, 0], graph.units[graph.edges[crossing, 1]], graph.control[crossing]
    output, carried = graph.edge_output[crossing], graph.carried_bytes[crossing]
    # of a pair's edges, those that carry come first
    order = np.lexsort((output, control, graph.topological_position[producer], reader))
    producer, reader, control, output = producer[order], reader[order], control[order], output[order]
    new_pair, new_output = np.ones(len(order), np.bool_), np.ones(len(order), np.bool_)
    new_pair[1:] = (np.diff(reader) != 0) | (np.diff(producer) != 0)
    new_output[1:] = new_pair[1:] | (np.diff(output) != 0)  # an output is sent once, each message on its own
    sent = np.bincount(np.cumsum(new_pair) - 1, weights=np.where(new_output, carried[order], 0.0))
    return reader[new_pair], producer[new_pair], ~control[new_pair], sent.astype(np.float64)


def _static(cluster: Cluster, seconds: Floats, held: HeldMemory) -> NDArray[np.float32]:
    """(units, devices, static features); seconds are those of (units, devices)."""
    count = len(cluster)
    work, total = seconds.mean(axis=1, keepdims=True), seconds.sum(axis=0)
    need = max(float(held.per_unit.sum()), 1.0)
    memory = np.clip(held.limits, 1.0, 1e3 * need)  # memory without end is no feature
    apart = ~np.eye(count, dtype=np.bool_)
    outgoing = np.where(apart, np.minimum(cluster.bandwidth, 1e15), 0.0).sum(axis=1) / max(count - 1, 1) + 1e-12
    features: dict[str, Column] = {
        "seconds": np.log((seconds + 1e-12) / (work + 1e-12)),
        "speed": np.log((total.mean() + 1e-12) / (total + 1e-12)),
        "memory": np.log(memory / memory.mean()),
        "memory_need": np.log(memory / need) / 4,
        "outgoing": np.log(outgoing / outgoing.mean()),
        "share": 1 / count,
        "is_cpu": cluster.is_cpu,
    }
    return joined(FEATURES[FIRST_STATIC:AFTER_STATIC], features)
