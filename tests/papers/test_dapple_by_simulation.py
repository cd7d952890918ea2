"""Planning by simulation: DAPPLE's equations propose pipelines, and the simulator chooses one, and its order."""

from __future__ import annotations

import numpy as np
import pytest

from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline
from envs.simulation.simulator import simulate
from placers.pipelines.published.device_policies import POLICIES, DeviceSets
from placers.pipelines.published.on_devices import layer_stages
from placers.pipelines.published.pipeline import Chain, Pipeline, Stage, estimate
from placers.pipelines.published.planner import Equations, planned
from placers.pipelines.published.servers import Servers
from tests.papers.dapple_profiles import PROFILED, problem_of, profile

GPUS, SIMULATED = 16, 20


def proposed(layers: Layers, servers: Servers, parts: int) -> list[Pipeline]:
    """The planner's own pipeline, then the best of it, of all pipelines of two stages and of data parallelism."""
    chain, count = Chain.of(layers, np.inf), len(layers)
    sizes = tuple(servers.sizes.tolist())
    own, _ = planned(chain, servers.links, DeviceSets.of(sizes), Equations(0, parts))
    candidates = {(Stage(0, count, sizes),), own.stages}
    for policy in POLICIES:
        for replicas in range(1, GPUS):
            first = tuple(policy(sizes, (0,) * len(sizes), replicas))
            rest = tuple(np.subtract(sizes, first).tolist())
            candidates |= {(Stage(0, cut, first), Stage(cut, count, rest)) for cut in range(1, count)}
    by_formula = [
        estimate(chain, servers.links, stages, max(parts * len(stages) // GPUS, 1))
        for stages in sorted(candidates, key=str)
    ]
    return [own, *sorted(by_formula, key=lambda pipeline: pipeline.seconds)[:SIMULATED]]


@pytest.mark.parametrize(
    ("model", "batch", "testbed", "gain"),
    [
        pytest.param("vgg-19", 2048, "A", 0.128, marks=pytest.mark.slow),
        ("vgg-19", 2048, "C", 0.284),
        pytest.param("bert-48", 64, "A", 0.156, marks=pytest.mark.slow),
        pytest.param("bert-48", 64, "B", 0.177, marks=pytest.mark.slow),
    ],
)
def test_simulating_the_best_by_formula_beats_the_best_by_formula(
    model: str, batch: int, testbed: str, gain: float
) -> None:
    """How much faster the best of 20 pipelines and two orders is than the formula's own pipeline in the first order."""
    parts = batch // PROFILED[model]
    problem = problem_of(profile(model), parts, testbed)
    layers, servers = Layers.of(problem, 100), Servers.of(problem.cluster)

    def seconds(pipeline: Pipeline, order: str) -> float:
        stages = layer_stages(pipeline.stages, servers.devices)
        return simulate(
            problem, LayerPipeline(stages, pipeline.micro_batches, order).plan(problem, layers)
        ).step_seconds

    own, *best = proposed(layers, servers, parts)
    assert own.seconds == best[0].seconds
    first, second = "early_backward_a", "early_backward_b"
    least = min(seconds(pipeline, order) for pipeline in best for order in (first, second))
    assert seconds(own, first) / least - 1 == pytest.approx(gain, abs=5e-4)
