"""Pipelines: an order of the units of a graph whose blocks can be stages, none of which waits for a later one."""

import numpy as np

from graphs.algorithms.components import strong_components
from graphs.algorithms.order import ready_first
from graphs.algorithms.pairs import distinct_pairs
from graphs.op_graph import Ints, Phase
from graphs.problem import Problem


def pipeline_positions(problem: Problem, rank: Ints) -> Ints:
    """(units,) where each unit stands in an order whose consecutive blocks can be the stages of a pipeline.

    Forward edges lead to later units, edges between backward ops to earlier ones. Units on a cycle of such edges, as op
    groups may be, stand at one place. Of the units that may come next, the one of least rank, (units,), does.
    """
    graph = problem.graph
    phase, between = graph.phase[graph.edges], graph.units[graph.edges]
    forward, backward = ((phase == each).all(axis=1) for each in (Phase.FORWARD, Phase.BACKWARD))
    edges = np.concatenate([between[forward], between[backward, ::-1]])
    label = strong_components(edges, graph.num_units)
    first = np.full(int(label.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, label, rank)
    pairs = distinct_pairs(label[edges])[0]
    order = ready_first(pairs[pairs[:, 0] != pairs[:, 1]], first)
    positions: Ints = np.argsort(order)[label]
    return positions
