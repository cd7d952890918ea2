"""Stages that are divided inside: their plans, and how near the grain of stages is to the grain of ops."""

from dataclasses import replace

import numpy as np
import pytest

from envs.costs.costs import timed
from envs.pipelines.grain.expand_stages import expand_stages
from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.plans.mesh import mesh_of
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.op_groups.layer_names import unit_layers
from graphs.problem import Problem
from placers.splits.stage_splits import SearchedSplits

FIRST, SECOND, ALL = (0, 1), (2, 3), (0, 1, 2, 3)  # of a server each, and both
Sets = tuple[tuple[tuple[int, ...], int], ...]  # of each stage the devices, and how many shards

WHOLE: Sets = ((ALL, 4),)
BOTH: Sets = ((FIRST, 2), (SECOND, 2))
REPLICAS_FIRST: Sets = ((FIRST, 1), (SECOND, 2))
THREE: Sets = ((FIRST, 2), ((2,), 1), ((3,), 1))


@pytest.fixture(scope="module")
def captured() -> tuple[Problem, Layers, SearchedSplits, LayerGrain]:
    """A captured step of a Transformer on two servers of two devices."""
    graph = load_graph("transformer:layers=8,width=512,heads=8,sequence=256,batch=48")
    problem = timed(Problem(graph, load_cluster("v100_servers:servers=2,devices=2")))
    layers, splits = Layers.of(problem, 64, (), unit_layers(graph)), SearchedSplits(problem, ALL)
    return problem, layers, splits, LayerGrain(problem, layers, splits)


Captured = tuple[Problem, Layers, SearchedSplits, LayerGrain]


def pipeline(layers: Layers, sets: Sets, micro_batches: int, *, recompute: bool = False) -> LayerPipeline:
    """As many layers in each stage, or nearly so."""
    ends = [round(len(layers) * number / len(sets)) for number in range(len(sets) + 1)]
    stages = tuple(LayerStage(ends[i], ends[i + 1], *each) for i, each in enumerate(sets))
    return LayerPipeline(stages, micro_batches, recompute=tuple(range(len(sets))) if recompute else ())


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(("sets", "micro_batches"), [(WHOLE, 1), (BOTH, 4), (REPLICAS_FIRST, 4), (THREE, 8)])
def test_the_grain_of_stages_is_near_the_grain_of_ops(
    captured: Captured, sets: Sets, micro_batches: int, recompute: bool
) -> None:
    """Time within 5%; peaks within 30%, since gradients of a wide loss are more than two at a time."""
    problem, layers, splits, grain = captured
    divided = pipeline(layers, sets, micro_batches, recompute=recompute)
    plan = divided.plan(problem, layers, splits)
    fine, coarse = simulate(problem, plan), grain.outcome(divided)
    assert coarse.step_seconds == pytest.approx(fine.step_seconds, rel=0.05)
    assert coarse.peak_bytes == pytest.approx(fine.peak_bytes, rel=0.3)
    written = expand_stages(problem, plan)
    by_stages = Simulator(written.problem, order=written.order).timeline(written.placement)
    assert by_stages.step_seconds == pytest.approx(fine.step_seconds, rel=0.06)
    leads = [device for stage in divided.stages for device in stage.leads]
    assert by_stages.held_bytes[leads] == pytest.approx(fine.held_bytes[leads])
    assert len(written.problem.graph) * 20 < len(problem.graph) * micro_batches * 4


def test_sums_over_servers_are_sums_of_what_each_shard_has(captured: Captured) -> None:
    """Two replicas of two shards, of which the search divides some updates."""
    problem, layers, splits, grain = captured
    divided = pipeline(layers, ((ALL, 2),), 2)
    fine = simulate(problem, divided.plan(problem, layers, splits))
    assert grain.outcome(divided).step_seconds == pytest.approx(fine.step_seconds, rel=0.15)


def test_a_plan_has_one_mesh_whose_last_axes_are_those_of_smaller_stages(captured: Captured) -> None:
    problem, layers, splits, _ = captured
    plan = pipeline(layers, THREE, 4).plan(problem, layers, splits)
    assert plan.mesh == (2,)
    plan.check(problem)
    sizes = {(len(devices), len(split)) for devices, split in zip(plan.devices, plan.split, strict=True)}
    assert {(2, 1), (1, 0)} <= sizes <= {(2, 1), (1, 0), (2, 0)}, "some are divided by the batch alone"
    assert [mesh_of((2, 3, 2), devices) for devices in (12, 6, 2, 3, 1)] == [(2, 3, 2), (3, 2), (2,), (3,), (1,)]


def test_what_is_no_division_is_refused(captured: Captured) -> None:
    problem, layers, splits, grain = captured
    half = len(layers) // 2
    unlike = LayerPipeline(
        (LayerStage(0, half, tuple(range(6)), 2), LayerStage(half, len(layers), tuple(range(6, 10)), 4))
    )
    with pytest.raises(InputError, match="divided over 2 x 2 devices, and another one over 3 x 2"):
        unlike.plan(problem, layers, splits)
    divided = pipeline(layers, BOTH, 4)
    with pytest.raises(InputError, match="a stage of the pipeline is divided; say by which indices"):
        divided.plan(problem, layers)
    with pytest.raises(InputError, match="a stage of the pipeline is divided; say by which indices"):
        LayerGrain(problem, layers).outcome(divided)
    with pytest.raises(InputError, match="cannot be combined with replicas that take turns"):
        grain.outcome(replace(divided, sharing="turns"))
    with pytest.raises(InputError, match="which 5 parts do not divide; take fewer micro-batches"):
        grain.outcome(replace(divided, micro_batches=5))
    folded = LayerPipeline((LayerStage(0, half, ALL, 4), LayerStage(half, len(layers), ALL, 2)), 4, "gpipe")
    with pytest.raises(InputError, match="device 0 is one of 2 shards of a stage, and of 4 of another one"):
        grain.outcome(folded)


def test_a_split_by_the_batch_alone_is_timed_as_replicas_are(captured: Captured) -> None:
    problem, layers, _, _ = captured
    replicas = pipeline(layers, ((FIRST, 1), (SECOND, 1)), 4).plan(problem, layers)
    by_batch = replace(replicas, split=((),) * len(problem.graph))
    one, other = (expand_stages(problem, plan) for plan in (replicas, by_batch))
    steps = [Simulator(each.problem, order=each.order).run(each.placement).step_seconds for each in (one, other)]
    assert steps[0] == steps[1]


def test_unequal_parts_are_not_timed_at_the_grain_of_stages(captured: Captured) -> None:
    problem, *_ = captured
    graph = problem.graph
    plan = Plan(((0, 1),) * len(graph), split=((),) * len(graph), mesh=((3.0, 1.0),))
    with pytest.raises(InputError, match="divided into unequal parts, which is not timed at the grain of stages"):
        expand_stages(problem, plan)


def test_an_undivided_pipeline_costs_what_it_did(captured: Captured) -> None:
    problem, layers, _, grain = captured
    plain = pipeline(layers, ((FIRST, 1), (SECOND, 1)), 4)
    without = LayerGrain(problem, layers).outcome(plain)
    assert grain.outcome(plain).step_seconds == without.step_seconds
    assert np.array_equal(grain.outcome(plain).peak_bytes, without.peak_bytes)
