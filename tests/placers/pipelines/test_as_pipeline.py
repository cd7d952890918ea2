"""From plans of others to pipelines of layers: what these cannot say is not said otherwise."""

from dataclasses import replace

import pytest

from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from graphs.files.load import load_cluster, load_graph
from graphs.op_groups.layer_names import unit_layers
from graphs.problem import Problem
from placers.pipelines.as_pipeline import as_pipeline


@pytest.mark.parametrize(("recompute", "kept"), [((), True), ((0, 1), False)])
def test_a_plan_that_recomputes_by_block_is_no_pipeline_of_layers(recompute: tuple[int, ...], *, kept: bool) -> None:
    """Which would compute whole stages again, once their gradient has arrived."""
    problem = Problem(load_graph("rnnlm:layers=2,steps=2,hidden=8,batch=4"), load_cluster("p100:devices=2"))
    layers = Layers.of(problem, 64, (), unit_layers(problem.graph))
    half = len(layers) // 2
    pipeline = LayerPipeline(
        (LayerStage(0, half, (0,)), LayerStage(half, len(layers), (1,))), micro_batches=2, recompute=recompute
    )
    plan = pipeline.plan(problem, layers)
    assert as_pipeline(problem, layers, plan) == pipeline
    for when in ("block", "early"):
        other = replace(plan, schedule=replace(plan.schedule, recompute_at=when))
        assert as_pipeline(problem, layers, other) == (pipeline if kept else None)
