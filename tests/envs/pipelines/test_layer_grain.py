"""The grain of layers: pipelines judged through it take what they take op by op, or nearly so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from envs.costs.costs import timed
from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.simulation.simulator import simulate
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.op_groups.layer_names import unit_layers
from graphs.problem import Problem
from placers.pipelines.pipeline_formula import PipelineFormula
from tests.envs.expansion.test_recompute import chain_of_blocks
from tests.oracle.toys import toy_cluster
from tests.papers.test_dapple import chain_of, row


def even(layers: int, *sets: tuple[int, ...]) -> tuple[LayerStage, ...]:
    """As many layers on each set of devices, or nearly so."""
    ends = [round(layers * number / len(sets)) for number in range(len(sets) + 1)]
    return tuple(LayerStage(ends[i], ends[i + 1], several) for i, several in enumerate(sets))


@pytest.mark.parametrize("order", ["gpipe", "early_backward_a", "early_backward_b"])
@pytest.mark.parametrize("sets", [((0,), (1,), (2,), (3,)), ((0, 1), (2, 3)), ((0,), (1, 2, 3)), ((0, 1, 2, 3),)])
def test_a_profile_of_layers_takes_exactly_as_long(order: str, sets: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(len(sets))
    seconds, sizes, weights = (rng.uniform(low, high, 8).tolist() for low, high in ((1, 9), (0, 4), (0, 9)))
    problem = Problem(chain_of(seconds, sizes, weights).graph(), row(4, 4.0))
    layers = Layers.of(problem, 8)
    pipeline = LayerPipeline(even(8, *sets), 4, order)
    fine = simulate(problem, pipeline.plan(problem, layers))
    coarse = LayerGrain(problem, layers).outcome(pipeline)
    assert coarse.step_seconds == pytest.approx(fine.step_seconds, rel=1e-9)


@pytest.mark.parametrize("again", [(0, 2, 0, 1), (1, 1, 1, 1), (2, 0, 9, 0)])
def test_first_layers_that_are_computed_again_are_stages_of_their_own(again: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    seconds, sizes, weights = (rng.uniform(low, high, 8).tolist() for low, high in ((1, 9), (1, 4), (0, 9)))
    problem = Problem(chain_of(seconds, sizes, weights).graph(), row(4, 4.0))
    layers, stages = Layers.of(problem, 8), even(8, (0,), (1,), (2,), (3,))
    pipeline = LayerPipeline(tuple(replace(one, again=count) for one, count in zip(stages, again, strict=True)), 8)
    fine, coarse = simulate(problem, pipeline.plan(problem, layers)), LayerGrain(problem, layers).outcome(pipeline)
    assert coarse.step_seconds == pytest.approx(fine.step_seconds, rel=1e-9)
    parts = pipeline.in_parts(layers)
    bounds = [(stage.first, stage.end) for stage in parts.stages]
    recomputed = [layer for place in parts.recompute for layer in range(*bounds[place])]
    assert recomputed == [layer for one, count in zip(stages, again, strict=True)
                          for layer in range(one.first, min(one.first + count, one.end))]  # fmt: skip
    assert parts.in_parts(layers) is parts


@pytest.mark.parametrize("again", [1, 2, 3, 4])
def test_blocks_that_are_computed_again_keep_their_borders_and_one_is_whole(again: int) -> None:
    """Of four blocks of 52 bytes, 4 of which are read by the next; two micro-batches, one after the other."""
    problem = Problem(chain_of_blocks(4, (20.0, 28.0, 4.0)), toy_cluster(1))
    layers = Layers.of(problem, len(problem.graph))
    pipeline = LayerPipeline((LayerStage(0, len(layers), (0,), again=3 * again),), 2)
    assert [stage.first for stage in pipeline.in_parts(layers).stages] == list(range(0, 3 * again + 1, 3))
    peak = 2 * float(simulate(problem, pipeline.plan(problem, layers)).peak_bytes[0])
    assert peak == max(4.0 * again + 52.0 * (4 - again), 4.0 * (again - 1) + 52.0)
    formula = PipelineFormula(LayerGrain(problem, layers), (0,))
    estimate = 2 * float(problem.cluster.memory_bytes[0]) * float(formula.filled(pipeline)[0])
    assert peak <= estimate < peak + 56.0  # of a block, which it takes to be there with all that is kept


@pytest.fixture(scope="module")
def captured() -> tuple[Problem, Layers, LayerGrain]:
    """A captured step of a Transformer on two servers."""
    graph = load_graph("transformer:layers=8,width=512,heads=8,sequence=256,batch=48")
    problem = timed(Problem(graph, load_cluster("v100_servers:servers=2,devices=2")))
    layers = Layers.of(problem, 64, (), unit_layers(graph))
    return problem, layers, LayerGrain(problem, layers)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(
    ("sets", "micro_batches"), [(((0,), (1,), (2,), (3,)), 8), (((0, 1), (2, 3)), 4), (((0, 1, 2, 3),), 2)]
)
def test_a_captured_step_takes_nearly_as_long_and_as_much(
    captured: tuple[Problem, Layers, LayerGrain], sets: tuple[tuple[int, ...], ...], micro_batches: int, recompute: bool
) -> None:
    """P21: time within 2%, peaks within 20%."""
    problem, layers, grain = captured
    again = tuple(range(len(sets))) if recompute else ()
    pipeline = LayerPipeline(even(len(layers), *sets), micro_batches, recompute=again)
    fine, coarse = simulate(problem, pipeline.plan(problem, layers)), grain.outcome(pipeline)
    assert coarse.step_seconds == pytest.approx(fine.step_seconds, rel=0.02)
    assert coarse.peak_bytes == pytest.approx(fine.peak_bytes, rel=0.2)


def test_what_is_no_pipeline_is_refused(captured: tuple[Problem, Layers, LayerGrain]) -> None:
    _, layers, grain = captured
    with pytest.raises(InputError, match="unknown pass order"):
        grain.outcome(LayerPipeline(even(len(layers), (0,), (1,)), 4, "no_such_order"))
    with pytest.raises(InputError, match="device 9"):
        grain.outcome(LayerPipeline(even(len(layers), (0,), (9,)), 4))
