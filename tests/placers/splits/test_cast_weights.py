"""Megatron-LM's rule divides a model whose weights `autocast` casts as it divides it without."""

import numpy as np
import pytest

from envs.costs.costs import timed
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.files.graph_source import graph_source
from graphs.files.load import load_cluster
from graphs.op_graph import Phase
from graphs.problem import Problem
from placers.splits.axes import over_mesh
from placers.splits.column_row import columns_and_rows

SMALL = "transformer:layers=2,width=32,heads=4,sequence=8,batch=4,vocabulary=40"


@pytest.mark.parametrize("word", ["bf16-mixed", "bf16"])
def test_the_same_products_are_divided_and_each_device_holds_its_part_of_the_weights(word: str) -> None:
    held, products = [], []
    for precision in ("fp32", word):
        graph = graph_source(SMALL).in_precision(precision).graph()
        split = columns_and_rows(graph, 2)
        forward = np.flatnonzero((graph.phase == Phase.FORWARD) & (graph.flops > 0)).tolist()
        products.append([graph.names[op].partition("/")[0] for op in forward if split[op]])
        problem = timed(Problem(graph, load_cluster("dgx_h100:servers=1,devices=2"), optimizer="none"), "roofline")
        by_axis, mesh = over_mesh(graph, [(2, split)])
        held.append(simulate(problem, Plan(((0, 1),) * len(graph), split=by_axis, mesh=mesh)).held_bytes.max())
    assert products[1] == products[0] != []
    share = 1.0 if word == "bf16-mixed" else 0.5
    assert held[1] == pytest.approx(held[0] * share, rel=0.01)  # but for the inputs, which stay as they are
