"""LiveOutputs: what a device holds for a part of the step, which a decoder that minds memory has to count.

`HeldMemory` counts what stays: weights, and outputs that wait for the backward pass. An output also lives from its op
to its last reader in the forward pass. On the way back of a training step, each unit that read it makes a gradient of
it, as large, which waits until all are there to be added. A roll-out follows all of them in the order in which it
places units:

    held outputs   2   4   4   6     only grow; there are none without a backward pass
    live outputs   5   3   1   0     come and go
    together       7   7   5   6     7 at the fullest moment, which is 1 above what is held in the end

Copies that other devices read are counted while their reader runs. Units are taken to run one after another; where
ops of many units run in turns, more lives at once than is counted.
"""

from typing import NamedTuple, Self

import numpy as np

from envs.simulation.held_memory import HeldMemory
from graphs.op_graph import Bools, Floats, Ints, OpGraph, Phase


class ForwardOps(NamedTuple):
    """Which ops run in the forward pass, in which order, and what reads them."""

    start: Ints  # (units + 1,) where the ops of each unit begin, in `ops`
    ops: Ints  # (forward ops,) by unit, then topologically
    edges: Ints  # (edges, 2) between them
    inputs: Ints  # (inputs,) ops of other units that feed a unit, each once
    readers: Ints  # (inputs,) that unit


class LiveOutputs(NamedTuple):
    """The outputs of forward ops, as they are counted while they live."""

    bytes: Floats  # (ops,) of each; 0 of other ops
    readers: Ints  # (ops,) how many other units read it
    inside: Floats  # (units,) bytes that live at once while the unit runs, at its fullest moment
    is_output: Bools  # (tensors,) of the held tensors those that are not there from the beginning, as weights are
    alone: float  # bytes that everything needs on one device
    trains: bool  # whether there is a backward pass, in which each reader makes a gradient of its own

    @classmethod
    def none(cls, graph: OpGraph, held: HeldMemory) -> Self:
        """Nothing counts but what is held."""
        ops = len(graph)
        is_output, need = np.zeros(len(held.tensor_bytes), np.bool_), float(held.tensor_bytes.sum())
        return cls(np.zeros(ops), np.zeros(ops, np.int64), np.zeros(held.units), is_output, need, False)

    @classmethod
    def of(cls, graph: OpGraph, held: HeldMemory, forward: ForwardOps, order: Ints) -> Self:
        """Of a graph whose units are placed in an order, (units,)."""
        size: Floats = np.where(graph.phase == Phase.FORWARD, graph.occupied_bytes[: len(graph)], 0.0)
        readers = np.bincount(forward.inputs, minlength=len(graph)).astype(np.int64)
        is_output = np.arange(len(held.tensor_bytes)) >= len(graph.weights) + len(graph.held_tensors)
        inside = _inside(forward, size, readers)
        trains = bool((graph.phase == Phase.BACKWARD).any())
        alone = _alone(graph, held, forward, order, LiveOutputs(size, readers, inside, is_output, 0.0, trains))
        return cls(size, readers, inside, is_output, alone, trains)


def _inside(forward: ForwardOps, size: Floats, readers: Ints) -> Floats:
    """(units,) the bytes at the fullest moment of a unit whose ops run one after another.

    An output lives until its last reader among them has run, and beyond if other units read it.
    """
    ops, count = forward.ops, len(forward.start) - 1
    position, unit = np.zeros(len(size), np.int64), np.repeat(np.arange(count), np.diff(forward.start))
    position[ops] = np.arange(len(ops))
    last = position.copy()
    np.maximum.at(last, forward.edges[:, 0], position[forward.edges[:, 1]])
    until = np.where(readers[ops] > 0, forward.start[unit + 1], last[ops] + 1)
    change = np.zeros(len(ops) + 1)
    np.add.at(change, np.arange(len(ops)), size[ops])
    np.add.at(change, until, -size[ops])
    fullest = np.zeros(count)
    np.maximum.at(fullest, unit, np.cumsum(change)[:-1])
    return fullest


def _alone(graph: OpGraph, held: HeldMemory, forward: ForwardOps, order: Ints, live: LiveOutputs) -> float:
    """The bytes at the fullest moment of one device that runs all units in the order."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    unit, tensor = held.holders.T
    first = np.full(len(held.tensor_bytes), len(order))
    np.minimum.at(first, tensor, place[unit])
    first = np.where(live.is_output, first, 0)
    holds = np.cumsum(np.bincount(first, held.tensor_bytes, len(order) + 1))[:-1]
    op, until = forward.inputs, place[forward.readers]
    if not live.trains:  # one tensor for all readers, until the last of them
        last = np.full(len(graph), -1)
        np.maximum.at(last, op, until)
        op = np.flatnonzero(last >= 0)
        until = last[op]
    born = place[graph.units[op]]
    stays = until > born
    change = np.bincount(born[stays] + 1, live.bytes[op[stays]], len(order) + 1)
    change -= np.bincount(until[stays] + 1, live.bytes[op[stays]], len(order) + 1)
    return float((holds + np.cumsum(change)[:-1] + live.inside[order]).max(initial=0.0))
