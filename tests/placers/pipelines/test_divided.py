"""Pipelines whose stages are divided inside: proposed, changed, and planned where nothing else fits or is as fast."""

import re
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.simulation.simulator import simulate
from graphs.files.load import load_cluster, load_graph
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.pipelines import planning
from placers.pipelines.budget import spending
from placers.pipelines.contest import Contest
from placers.pipelines.divided import DividedPipelines
from placers.pipelines.merit import INVALID
from placers.pipelines.moves import PipelineMoves, change
from placers.pipelines.notes import description
from placers.pipelines.pipeline_formula import PipelineFormula
from placers.pipelines.planning import PipelinePlanning
from placers.pipelines.proposals import Proposer
from placers.planner import Planner
from tests.envs.expansion.divided_graphs import mlp

QUICK = Planner(policy="")  # without the learned policy


def on(graph: OpGraph, memory: float = np.inf, cluster: str = "v100_servers:servers=1,devices=4") -> Problem:
    """On devices with so many bytes each."""
    built = load_cluster(cluster)
    devices = tuple(replace(device, memory_bytes=memory) for device in built.devices)
    return Problem(graph, replace(built, devices=devices), optimizer="sgd")


def embedding() -> tuple[OpGraph, float]:
    """A captured model most of whose weights are an embedding and what makes words of it again."""
    graph = load_graph("transformer:layers=1,width=64,heads=4,sequence=16,batch=16,vocabulary=20000")
    return graph, 2 * 1.1 * float(graph.weights.max())


def wide_products() -> tuple[OpGraph, float]:
    """Two products, whose weights need as much memory each as a device and a half has."""
    graph = mlp([512, 8192, 512], 256).graph
    return graph, 2 * 0.7 * float(graph.weights.max())


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (embedding, r"planner: its own pipeline is the only one of .*, whose stages are of 1 x "),
        (wide_products, r"planner: the best of .* is tensor_parallel: .* as fast as the next, its own pipeline\."),
    ],
)
def test_layers_that_fit_on_no_device_are_divided(model: Callable[[], tuple[OpGraph, float]], said: str) -> None:
    problem = on(*model())
    undivided = replace(QUICK, split=False).place(problem, budget=20)
    assert not simulate(problem, undivided.plan).fits
    found = QUICK.place(problem, budget=40)
    assert simulate(problem, found.plan).fits
    assert found.plan.split
    assert re.match(said, " ".join(found.notes))


def test_large_weights_and_few_samples_are_faster_divided() -> None:
    problem = on(mlp([4096] * 4, 16).graph)
    without, found = (replace(QUICK, split=split).place(problem, budget=20) for split in (False, True))
    steps = [simulate(problem, each.plan).step_seconds for each in (without, found)]
    assert steps[1] < 0.7 * steps[0]
    assert not without.plan.split


def test_what_is_far_behind_at_the_grain_of_stages_is_not_simulated_op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many micro-batches of what is latency alone take as many times as long: only the grain of stages is simulated."""
    monkeypatch.setattr(planning, "FEW_OPS", 0)
    problem = on(mlp([512] * 4, 16).graph)
    with spending(99, "planning") as spent:
        contest = Contest(problem, spent)
        known = PipelinePlanning(problem, contest, spent, 0, layers=16, micro_batches=0, split=True)
        best = LayerPipeline((LayerStage(0, len(known.layers), (0, 1, 2, 3), 4),), 1)
        near, far = replace(best, order="gpipe"), replace(best, micro_batches=16)
        assert known.simulated(best) is not None
        with mock.patch.object(Contest, "offer", autospec=True, side_effect=Contest.offer) as offered:
            assert known.op_by_op.merit(near) < INVALID
            assert known.op_by_op.merit(far) == INVALID
        assert [call.args[2].schedule.micro_batches for call in offered.call_args_list] == [1]
    grain = known.proposer.grain
    assert grain.outcome(far).step_seconds > planning.FAR * grain.outcome(best).step_seconds


def test_proposals_divide_servers_into_equal_stages() -> None:
    problem = on(mlp([64] * 9, 32).graph, cluster="v100_servers:servers=2,devices=4")
    layers = Layers.of(problem, 16)
    divided = DividedPipelines(Proposer(PipelineFormula(LayerGrain(problem, layers), range(8))))
    assert divided.widths == (2, 4)
    proposals = list(divided.proposals())
    forms = {tuple((stage.devices, stage.shards) for stage in one.stages) for one in proposals}
    assert forms == {
        ((tuple(range(8)), 4),), (((0, 1, 2, 3), 4), ((4, 5, 6, 7), 4)),
        ((tuple(range(8)), 2),), (((0, 1, 2, 3), 2), ((4, 5, 6, 7), 2)),
        (((0, 1), 2), ((2, 3), 2), ((4, 5), 2), ((6, 7), 2)),
    }  # fmt: skip
    for one in proposals:
        assert (one.stages[0].first, one.stages[-1].end) == (0, len(layers))
        assert all(32 % (one.micro_batches * stage.replicas) == 0 for stage in one.stages)


def test_moves_change_how_many_shards_a_stage_has() -> None:
    kind = np.zeros(8, np.int64)
    moves = replace(PipelineMoves.of(range(8), kind, np.arange(8) // 4, 32, 0), widths=(2, 4))
    pipeline = LayerPipeline((LayerStage(0, 3, (0, 1, 2, 3), 2), LayerStage(3, 6, (4, 5, 6, 7))), 4)
    around = [one for one in moves.neighbours(pipeline) if change(pipeline, one) == "shards"]
    shards = {tuple(stage.shards for stage in one.stages) for one in around}
    assert shards == {(4, 1), (1, 1), (2, 2), (4, 2)}
    assert all(
        stage.devices == before.devices
        for one in around
        for stage, before in zip(one.stages, pipeline.stages, strict=True)
    )
    for one in moves.neighbours(pipeline):
        for stage in one.stages:
            groups = np.array(stage.devices).reshape(-1, stage.shards)
            assert (groups // 4 == groups[:, :1] // 4).all(), "shards of a replica are on one server"
    without = [change(pipeline, one) for one in replace(moves, widths=()).neighbours(pipeline)]
    assert "shards" not in without
    assert not any(one.sharing == "turns" for one in moves.neighbours(pipeline))


def test_a_description_says_how_stages_are_divided() -> None:
    pipeline = LayerPipeline((LayerStage(0, 3, (0, 1, 2, 3), 2), LayerStage(3, 6, (4, 5, 6, 7), 4)), 4)
    assert (
        "on 4 devices each, whose stages are of 2 x 2, 1 x 4 devices (replicas x shards), 4 micro-batches"
        in description(pipeline, 1.0)
    )
