"""Pipelines are simulated once each at the grain of stages, unless they have too many copies of ops."""

from dataclasses import replace

import pytest

from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.schedule import pass_order_of
from placers.pipelines.budget import spending
from placers.pipelines.merit import INVALID
from placers.pipelines.pipeline_evaluator import PipelineEvaluator
from tests.placers.pipelines.test_planner import chain


def test_pipelines_with_too_many_copies_of_ops_are_not_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = chain(3, 4, [1.0] * 4)
    layers = Layers.of(problem, 4)
    pipeline = LayerPipeline((LayerStage(0, 1, (0,)), LayerStage(1, 4, (1, 2, 3))), micro_batches=5)
    copies = 5 * sum(map(len, pipeline.plan(problem, layers).devices))
    once = LayerPipeline((LayerStage(0, 4, (0,)),))
    with spending(99, "pipelines") as spent:
        for most, tried, is_simulated in (
            (4 * copies, pipeline, True),  # on each of four devices
            (4 * copies - 1, pipeline, False),
            (0, once, True),
        ):
            monkeypatch.setattr("placers.pipelines.size.MOST_SECONDS", most)
            before = spent.simulations
            merit = PipelineEvaluator(LayerGrain(problem, layers), spent).merit(tried)
            assert (merit != INVALID) == is_simulated
            assert spent.simulations - before == is_simulated


def test_orders_of_the_same_passes_are_simulated_once() -> None:
    """Of one micro-batch, all orders of whole backward passes; of two, GPipe's is another one than 1F1B."""
    problem = chain(3, 4, [1.0] * 2, samples=16)
    grain = LayerGrain(problem, Layers.of(problem, 4))
    orders = [pass_order_of(name) for name in ("early_backward_a", "early_backward_b", "gpipe")]
    for micro_batches, simulations in ((1, 1), (2, 3)):
        two = LayerPipeline((LayerStage(0, 2, (0,)), LayerStage(2, 4, (1,))), micro_batches)
        with spending(99, "pipelines") as spent:
            evaluator = PipelineEvaluator(grain, spent)
            merits = {evaluator.merit(replace(two, order=order)) for order in orders}
            assert spent.simulations == simulations
            assert micro_batches > 1 or len(merits) == 1
