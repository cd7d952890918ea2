"""What devices hold of a model that is too large for any of them, once its ops are divided."""

from dataclasses import replace

import numpy as np
import pytest

from envs.expansion.expand import expand
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.foundation import by_name
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from tests.envs.expansion.divided_graphs import ITEM, mlp
from tests.envs.expansion.test_divided_bytes import columns_and_rows
from tests.oracle.toys import toy_cluster

LAYERS, WIDTH, BATCH = 5, 8192, 256
WEIGHT, ACTIVATION = ITEM * WIDTH * WIDTH, ITEM * BATCH * WIDTH


def problem(graph: OpGraph, devices: int, memory: float) -> Problem:
    return Problem(graph, toy_cluster(devices, memory=memory, shared_out=True), optimizer="sgd")


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_a_perceptron_too_large_for_a_device_takes_its_part_and_what_is_whole(devices: int) -> None:
    """Of weights, gradients and what is between columns and rows each has its part; the input is whole.

    Most is held when the last gradient is made, of the first layer's weight from that of what the layer makes. Updates
    here write the weights in place.
    """
    graph = mlp([WIDTH] * (LAYERS + 1), BATCH).graph
    graph = replace(graph, output_bytes=np.where(graph.phase == Phase.UPDATE, 0.0, graph.output_bytes))
    part = (LAYERS * 2 * WEIGHT + ACTIVATION) / devices
    buffers = ACTIVATION
    alone = simulate(problem(graph, 1, part + buffers), Plan(((0,),) * len(graph)))
    assert not alone.fits
    split = columns_and_rows(graph)
    timeline = simulate(
        problem(graph, devices, part + buffers), Plan((tuple(range(devices)),) * len(graph), split=split)
    )
    assert timeline.fits
    assert timeline.peak_bytes.tolist() == [part + buffers] * devices
    assert timeline.peak_bytes.max() <= alone.peak_bytes.max() / devices + buffers


@pytest.mark.parametrize("batch", [64, 8 * WIDTH])
@pytest.mark.parametrize("devices", [2, 4, 8])
@pytest.mark.parametrize("placer", ["tofu", "optcnn"])
def test_searched_cuts_hold_their_part_and_the_pieces_that_arrive(placer: str, devices: int, batch: int) -> None:
    """Whatever weighs more, weights or activations: in addition there is what arrives for an op and the next one."""
    graph = mlp([WIDTH] * (LAYERS + 1), batch).graph
    alone = simulate(problem(graph, 1, 1e18), Plan(((0,),) * len(graph)))
    given = problem(graph, devices, 0.7 * float(alone.peak_bytes[0]))
    plan = by_name.build("placers", placer).place(given).plan
    timeline, expansion = simulate(given, plan), expand(given, plan)
    arrives = np.zeros(len(expansion.problem.graph))  # at each op from other devices
    producer, consumer = np.unique(expansion.problem.graph.edges[~expansion.problem.graph.control], axis=0).T
    apart = expansion.placement[producer] != expansion.placement[consumer]
    np.add.at(arrives, consumer[apart], expansion.problem.graph.output_bytes[producer[apart]])
    assert timeline.fits
    assert timeline.held_bytes.max() == alone.held_bytes[0] / devices
    assert timeline.peak_bytes.max() <= alone.peak_bytes[0] / devices + 2 * arrives.max()
