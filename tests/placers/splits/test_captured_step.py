"""Cuts of captured models are plans that the simulator runs, about as fast as the search says."""

import pytest

from envs.simulation.simulator import simulate
from graphs.files.load import load_cluster, load_graph
from graphs.problem import Problem
from placers.splits.cuts import searched
from placers.splits.described_step import plan_of, split_graph_of
from placers.splits.elimination_order import min_fill_order
from placers.splits.mesh import best_mesh, prices_of_links
from placers.splits.options import Splitting
from placers.splits.pricing import Pricing


@pytest.mark.parametrize("model", ["transformer:layers=1,batch=8", "vgg"])
def test_cuts_of_a_captured_model_are_a_plan(model: str) -> None:
    problem = Problem(load_graph(model), load_cluster("v100_servers:servers=1,devices=4"))
    mesh = best_mesh(problem.cluster, range(4))
    splitting = Splitting(split_graph_of(problem), mesh)
    found = searched(Pricing(splitting, prices_of_links(problem.cluster, range(4), mesh)), most_operations=0)
    plan = plan_of(splitting, found, range(4))
    plan.check(problem)
    one_device = sum(op.seconds for op in splitting.graph.ops)
    assert found.cost < 0.8 * one_device
    assert simulate(problem, plan).step_seconds == pytest.approx(found.cost, rel=0.5)


def test_unrolled_cells_of_a_captured_model_are_tied() -> None:
    problem = Problem(load_graph("rnnlm:steps=4,layers=1"), load_cluster("v100_servers:servers=1,devices=4"))
    splitting = Splitting(split_graph_of(problem), (4,))
    apart = Splitting(split_graph_of(problem, steps=False), (4,))
    assert len(splitting.variables) < 0.6 * len(apart.variables)
    order = min_fill_order([len(several) for several in splitting.further()], splitting.pairs)
    assert order.width <= 5
