"""Sub-layers: what a pipeline may be cut into, so that one tensor passes each cut (He et al. 2021, section 3.2).

embedding | attention + skip | MLP + skip | attention + skip | ... | norm | output layer and loss
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from envs.pipelines.unit_order import pipeline_positions
from graphs.op_graph import Bools, Floats, Ints, Phase
from graphs.op_groups.layer_names import named_layers
from graphs.problem import Problem
from graphs.transforms.batch import grows
from placers.pipelines.published.auto_pipe import BYTES_PER_PARAMETER, MILLION


@dataclass(frozen=True, eq=False)
class SubLayers:
    """The sub-layers of a graph, in the order of the forward pass."""

    of_unit: Ints  # (units,) the sub-layer of each unit
    sizes: Floats  # (sub-layers,) parameters, in millions
    trained: Floats  # (sub-layers,) those of them that are trained

    @property
    def first_trained(self) -> int:
        """The first sub-layer with weights that are trained; those before it are frozen."""
        return int((self.trained > 0).argmax())

    @classmethod
    def of(cls, problem: Problem) -> SubLayers:
        """The sub-layers of a problem's graph; there is at least one.

        What comes before the layers that names show is one sub-layer, and a layer is cut in two where that divides its
        parameters most evenly. After the layers, and in a graph whose names show none, all cuts that one tensor passes
        are made. What has no parameters is with the sub-layer before it.
        """
        graph = problem.graph
        position = pipeline_positions(problem, problem.units.first_op)
        count = int(position.max()) + 1
        sizes, trained = np.zeros((2, count))
        first = np.full(len(graph.weights), count)
        use, weight = graph.weight_uses.T
        np.minimum.at(first, weight, position[graph.units[use]])
        used = np.flatnonzero(first < count)
        for total, each in ((sizes, graph.weights), (trained, graph.trained_weights)):
            np.add.at(total, first[used], each[used] / BYTES_PER_PARAMETER / MILLION)
        may_cut = _passed_by_one(problem, position) & _between_layers(problem, position, sizes)
        block = np.concatenate([[0], np.cumsum(may_cut[:-1])]).astype(np.int64)
        has_weights = np.bincount(block, sizes) > 0
        has_weights[0] = True
        joined = (np.cumsum(has_weights) - 1)[block]
        of_each = (np.bincount(joined, amount).astype(np.float64) for amount in (sizes, trained))
        return cls(joined[position], *of_each)


def _passed_by_one(problem: Problem, position: Ints) -> Bools:
    """(positions,) whether at most one output of the forward pass is read both before and after the end of each.

    Outputs that do not depend on the samples, such as masks, are not counted.
    """
    graph, count = problem.graph, int(position.max()) + 1
    inside = ~graph.control & (graph.phase[graph.edges] == Phase.FORWARD).all(axis=1) & grows(graph)[graph.edges[:, 0]]
    producer, consumer = graph.edges[inside].T
    last = np.full(len(graph), -1)
    np.maximum.at(last, producer, position[graph.units[consumer]])
    made = np.flatnonzero(last >= 0)
    change = np.zeros(count + 1, np.int64)
    np.add.at(change, position[graph.units[made]], 1)
    np.add.at(change, last[made], -1)
    passed: Bools = np.cumsum(change)[:-1] <= 1
    return passed


def _between_layers(problem: Problem, position: Ints, sizes: Floats) -> Bools:
    """(positions,) whether a cut after each is between layers, after them, or divides one; all, without layers."""
    graph, count = problem.graph, len(sizes)
    forward = np.flatnonzero(graph.phase == Phase.FORWARD)
    layer = named_layers(graph)[forward]
    at = position[graph.units[forward]]
    found = np.ones(count, np.bool_)
    layers = int(layer.max()) + 1
    passed = _passed_by_one(problem, position)
    for number in range(layers):
        inside = at[layer == number]
        first, last = int(inside.min()), int(inside.max())
        if number == 0:
            found[: max(first - 1, 0)] = False
        found[first:last] = False
        before = np.cumsum(sizes[first : last + 1])
        halves = np.where(passed[first:last], np.minimum(before[:-1], before[-1] - before[:-1]), 0.0)
        if halves.max(initial=0.0) > 0:
            found[first + int(halves.argmax())] = True
    return found
