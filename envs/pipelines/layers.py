"""Layers: a problem as a chain, which pipelines cut into stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.costs.costs import costs_of
from envs.expansion.shares import shared
from envs.pipelines.unit_order import pipeline_positions
from envs.simulation.held_memory import HeldMemory
from graphs.op_graph import Floats, Ints, OpGraph, Phase
from graphs.op_graph.weight_memory import weight_gradient_bytes, weight_gradients
from graphs.op_groups.layer_names import named_blocks
from graphs.problem import Problem


@dataclass(frozen=True, eq=False)
class Layers:
    """What consecutive layers cost one device for the whole batch; on unequal devices the mean over them.

    Layers are units in an order of the forward pass, several together where there are many or where stages could not
    be cut between them. Each (layers,) unless said otherwise.
    """

    of_unit: Ints  # (units,) the layer of each unit
    forward: Floats  # seconds that are shared out over micro-batches and replicas
    backward: Floats  # seconds
    forward_fixed: Floats  # seconds of each micro-batch on each replica, however small: launches, weights that are read
    backward_fixed: Floats  # seconds
    update: Floats  # seconds of a step, whatever the batch
    sent: Floats  # bytes that pass from each layer and those before it to later ones
    returned: Floats  # bytes that pass back there
    weights: Floats  # bytes of gradients that replicas sum up
    held: Floats  # bytes of weights with their gradients and optimizer state
    kept: Floats  # bytes of outputs that wait for the backward pass
    on_devices: Floats  # (2, layers + 1, devices) of the layers before each the seconds that are shared out, and others
    block: Ints  # of layers whose names show such; -1 of what is outside of blocks, or of several

    def __len__(self) -> int:
        return len(self.forward)

    @cached_property
    def begin(self) -> Ints:
        """(layers,) the first one of the consecutive layers of the same block, or of none, that each is among."""
        begins = np.diff(self.block, prepend=self.block[:1] - 1) != 0
        found: Ints = np.flatnonzero(begins)[np.cumsum(begins) - 1]
        return found

    def weight_gradients_apart(self, problem: Problem) -> bool:
        """Whether every layer of the problem that is updated has ops of its own for the gradients of its weights."""
        graph, layer = problem.graph, self.of_unit[problem.graph.units]
        updated, of_weights = (layer[ops] for ops in (graph.phase == Phase.UPDATE, weight_gradients(graph)))
        return bool(np.isin(updated, of_weights).all())

    @classmethod
    def of(cls, problem: Problem, most: int, devices: Sequence[int] = (), rank: Ints | None = None) -> Layers:
        """The units of a problem, joined until there are no more layers than asked for; `devices` are all unless given.

        Of units that may come next, those of least rank, (units,), do: the first in the graph unless it is given.
        """
        graph, units = problem.graph, problem.units
        position = pipeline_positions(problem, units.first_op if rank is None or not len(rank) else rank)
        every = list(range(len(problem.cluster)))
        on_devices = seconds_of_shares(problem, every)
        seconds, fixed = (each[:, list(devices or every)].mean(axis=1) for each in on_devices)
        sent, returned = _across(problem, position)
        work = np.bincount(position, units.summed(seconds + fixed)).astype(np.float64)
        layer = _joined(work, sent + returned, most)  # of each position
        of_op, count = layer[position[graph.units]], int(layer[-1]) + 1

        def per_layer(values: Floats, *phases: Phase) -> Floats:
            return np.bincount(of_op, np.where(np.isin(graph.phase, phases), values, 0.0), count).astype(np.float64)

        def of_units(values: Floats) -> Floats:
            return np.bincount(layer[position], values, count).astype(np.float64)

        held = units.weight_bytes(problem.weight_state_bytes)
        return cls(
            layer[position],
            per_layer(seconds, Phase.FORWARD),
            per_layer(seconds, Phase.BACKWARD),
            per_layer(fixed, Phase.FORWARD),
            per_layer(fixed, Phase.BACKWARD),
            per_layer(seconds + fixed, Phase.UPDATE, Phase.REFRESH),
            sent[_last_of(layer)],
            returned[_last_of(layer)],
            of_units(units.weight_bytes(weight_gradient_bytes(graph))) if graph.is_training else np.zeros(count),
            of_units(held),
            of_units(np.maximum(HeldMemory.of(problem).per_unit - held, 0.0)),
            np.array(
                [
                    [sums_before(per_layer(each[:, one], Phase.FORWARD, Phase.BACKWARD)) for one in every]
                    for each in on_devices
                ]
            ).transpose(0, 2, 1),
            _blocks(graph, of_op, count),
        )


def sums_before(values: Floats) -> Floats:
    """(layers + 1,) sums of values, (layers,), over the layers before each."""
    return np.append(0.0, np.cumsum(values))


def seconds_of_shares(problem: Problem, devices: list[int]) -> tuple[Floats, Floats]:
    """(ops, devices) what of the seconds of each op is shared out, and what is not, launches included.

    Half the batch tells the two apart.
    """
    half = shared(problem, 0.5).op_seconds
    assert half is not None
    whole = costs_of(problem).op_seconds[:, devices]
    fixed = np.clip(2 * half[:, devices] - whole, 0.0, whole)
    launches = np.where(whole > 0, problem.hold_seconds[devices], 0.0)
    return whole - fixed, fixed + launches


def _blocks(graph: OpGraph, layer: Ints, count: int) -> Ints:
    """(layers,) the block that the names of all forward ops of each show, or -1; `layer` is that of each op."""
    forward = np.flatnonzero(graph.phase == Phase.FORWARD)
    named, of = named_blocks(graph)[forward], layer[forward]
    most, least = np.full(count, -1), np.full(count, len(graph))
    np.maximum.at(most, of, named)
    np.minimum.at(least, of, named)
    return np.where(most == least, most, -1)


def _last_of(layer: Ints) -> Ints:
    """(layers,) the last position of each layer."""
    return np.flatnonzero(np.diff(layer, append=layer[-1] + 1))


def _across(problem: Problem, position: Ints) -> tuple[Floats, Floats]:
    """(positions,) bytes that pass from each position and those before it to later ones, and back.

    An output that several later units read passes once. `position` is that of each unit, (units,).
    """
    graph, count = problem.graph, int(position.max()) + 1
    producer, consumer = position[graph.units[graph.edges]].T
    directions = []
    for first, last in ((producer, consumer), (consumer, producer)):
        crossing = np.flatnonzero((first < last) & ~graph.control)
        outputs, which = np.unique(graph.edge_output[crossing], return_inverse=True)
        begin, end = np.full(len(outputs), count), np.zeros(len(outputs), np.int64)
        np.minimum.at(begin, which, first[crossing])
        np.maximum.at(end, which, last[crossing])
        change = np.zeros(count + 1)
        np.add.at(change, begin, graph.moved_bytes[outputs])
        np.add.at(change, end, -graph.moved_bytes[outputs])
        directions.append(np.maximum(np.cumsum(change)[:-1], 0.0))
    return directions[0], directions[1]


def _joined(seconds: Floats, crossing: Floats, most: int) -> Ints:
    """(positions,) the layer of each, of at most `most` that take about equal time, cut where least crosses.

    `crossing` are bytes that cross after each position.
    """
    count = len(seconds)
    is_last = np.ones(count, np.bool_)
    if count > most:
        done = np.cumsum(seconds + (seconds.sum() / count or 1.0) * 1e-3)  # what takes no time is divided too
        window = np.minimum((done / done[-1] * most).astype(np.int64), most - 1)  # a cut after one position of each
        is_last[:] = False
        for number in np.unique(window)[:-1]:
            inside = np.flatnonzero(window == number)
            is_last[inside[crossing[inside].argmin()]] = True
    is_last[-1] = False
    return np.concatenate([[0], np.cumsum(is_last)[:-1]]).astype(np.int64)
