"""Unequal replicas of a stage of a pipeline have shares by speed, and end together."""

from dataclasses import replace

import pytest

from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.schedule import Schedule
from envs.simulation.simulator import simulate
from graphs.op_graph.batch_law import BatchLaw
from graphs.problem import Problem
from tests.envs.expansion.pipelines import Pipeline, servers


def chain_on(*speeds: float, samples: int = 0) -> tuple[Problem, Layers]:
    """Four layers of two seconds forward and four backward, on devices that compute so many FLOP in a second."""
    graph = replace(Pipeline(4, forward=2.0, backward=4.0).graph(), batch_law=BatchLaw(samples))
    even = servers(len(speeds))
    devices = (replace(one, flops_per_second=speed) for one, speed in zip(even.devices, speeds, strict=True))
    problem = Problem(graph, replace(even, devices=tuple(devices)))
    return problem, Layers.of(problem, 4)


@pytest.mark.parametrize("samples", [0, 16])
def test_stages_of_equal_strength_take_what_equal_devices_take(samples: int) -> None:
    """Stages of 3 + 1, and 2 + 2: with two micro-batches, each of 24 / 2 / 2 / 4 seconds in a stage."""
    problem, layers = chain_on(3.0, 1.0, 2.0, 2.0, samples=samples)
    pipeline = LayerPipeline((LayerStage(0, 2, (0, 1)), LayerStage(2, 4, (2, 3))), 2)
    plan = pipeline.plan(problem, layers)
    assert plan.schedule.shares == ((3, 1), ())
    assert simulate(problem, plan).step_seconds == pytest.approx((2 + 1) * 1.5)
    outcome = LayerGrain(problem, layers).outcome(pipeline)
    assert outcome.step_seconds == pytest.approx(simulate(problem, plan).step_seconds)
    equal = replace(plan, schedule=replace(plan.schedule, shares=()))
    assert simulate(problem, equal).step_seconds > 1.4 * outcome.step_seconds


def test_one_stage_on_unequal_devices_is_data_parallelism_by_speed() -> None:
    problem, layers = chain_on(1.0, 4.0, 3.0, samples=64)
    plan = LayerPipeline((LayerStage(0, 4, (0, 1, 2)),)).plan(problem, layers)
    assert plan.schedule == Schedule(shares=((1, 4, 3),))
    assert simulate(problem, plan).step_seconds == pytest.approx(24 / 8)


def test_shares_are_of_replicas_that_split_micro_batches_of_enough_samples() -> None:
    problem, layers = chain_on(1.0, 3.0, samples=4)
    turns = LayerPipeline((LayerStage(0, 4, (0, 1)),), 2, sharing="turns")
    assert turns.plan(problem, layers).schedule.shares == ()
    of_one_sample = LayerPipeline((LayerStage(0, 4, (0, 1)),), 4)
    assert of_one_sample.shares(problem, layers) == ((),)
