"""Frozen layers in pipelines with replicas: what is summed up and held, op by op and at the grain of stages."""

import numpy as np
import pytest

from envs.expansion.expanded import Role
from envs.pipelines.grain.expand_stages import expand_stages
from envs.simulation.simulator import Simulator, simulate
from envs.timelines.timeline import Timeline
from graphs.descriptions.another_batch import with_batch
from graphs.files.load import load_cluster, load_graph
from graphs.problem import Problem
from graphs.transforms.freezing import freeze_layers
from placers.pipetransformer import PipeTransformer

PIPELINES = 2


def summed_bytes(timeline: Timeline) -> float:
    """Bytes that the steps of all-reduces send."""
    assert timeline.expansion is not None
    graph = timeline.problem.graph
    return float(graph.carried_bytes[timeline.expansion.role[graph.edges[:, 0]] == Role.SEND].sum())


@pytest.mark.parametrize("frozen", [2, 4])
@pytest.mark.parametrize("family", ["vit:image=64", "bert:sequence=32"])
def test_only_what_is_trained_is_summed_up_and_has_gradients(family: str, frozen: int) -> None:
    graph = freeze_layers(load_graph(f"{family},layers=4,width=64,heads=2,batch=8", with_law=True), frozen)
    graph = with_batch(graph, 64)
    problem = Problem(graph, load_cluster("pipetransformer:servers=1,devices=4"))
    plan = PipeTransformer(first=4, devices=2, pipelines=PIPELINES, micro_batches=4).place(problem).plan
    of_ops = simulate(problem, plan)
    stages = expand_stages(problem, plan)
    of_stages = Simulator(stages.problem, order=stages.order).timeline(stages.placement)
    trained = graph.trained_weights[np.unique(graph.weight_uses[:, 1])].sum()
    assert summed_bytes(of_ops) == pytest.approx(2 * (PIPELINES - 1) * trained)
    uses = np.unique(
        np.column_stack([np.array(plan.schedule.stages)[graph.weight_uses[:, 0]], graph.weight_uses[:, 1]]), axis=0
    )
    weights = of_ops.held_bytes - of_ops.given_bytes(grows=True) - of_ops.given_bytes(grows=False)
    assert weights.sum() == pytest.approx(PIPELINES * problem.weight_memory.bytes[uses[:, 1]].sum())
    assert of_stages.held_bytes.tolist() == pytest.approx(of_ops.held_bytes.tolist())
    assert of_stages.step_seconds == pytest.approx(of_ops.step_seconds, rel=0.03)
