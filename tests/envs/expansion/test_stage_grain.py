"""The grain of stages against the grain of ops."""

from dataclasses import replace

import numpy as np
import pytest

from envs.costs.costs import timed
from envs.expansion.expanded import Expansion
from envs.pipelines.grain.expand_stages import expand_stages
from envs.pipelines.grain.stage_grain import StageGrain
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from envs.timelines.timeline import Timeline
from graphs.files.load import load_cluster, load_graph
from graphs.problem import Problem
from placers.gpipe import GPipe
from tests.envs.expansion.pipelines import Pipeline, servers

CHAIN = Pipeline(
    stages=4, micro_batches=4, forward=(1, 2, 1, 1), backward=2.0, weight_gradient=1.0, activation=3.0, gradient=2.0,
    weights=5.0, update=0.5,
)  # fmt: skip


def run(expansion: Expansion) -> Timeline:
    """The timeline of an expansion."""
    return Simulator(expansion.problem, order=expansion.order).timeline(expansion.placement)


@pytest.mark.parametrize("order", ["gpipe", "early_backward_a", "zb_h1"])
@pytest.mark.parametrize("recompute", [(), (0, 1, 2, 3)])
def test_a_chain_of_an_op_per_stage_and_phase_is_at_the_grain_of_stages(order: str, recompute: tuple[int, ...]) -> None:
    problem = CHAIN.problem(servers(4, bandwidth=4.0, latency=0.1))
    plan = CHAIN.plan(order, recompute=recompute)
    fine, coarse = simulate(problem, plan), run(expand_stages(problem, plan))
    assert coarse.step_seconds == pytest.approx(fine.step_seconds)
    assert coarse.held_bytes.tolist() == fine.held_bytes.tolist()


def test_seconds_are_summed_with_launches_but_the_last() -> None:
    problem = CHAIN.problem(servers(2, launch=0.25))
    plan = CHAIN.plan("gpipe", ranks=((0, 1), (2, 3)))
    stages = tuple(np.array(plan.schedule.stages) // 2)
    two = Plan(plan.devices, schedule=replace(plan.schedule, stages=tuple(map(int, stages))))
    grain = StageGrain(problem, two)
    names = grain.coarse.graph.names
    assert grain.coarse.op_seconds is not None
    seconds = dict(zip(names, grain.coarse.op_seconds[:, 0].tolist(), strict=True))
    assert seconds["forward.0"] == 4 * (1 + 2) + 0.25
    assert seconds["backward.1"] == 4 * (2 + 2) + 0.25
    assert seconds["gradient.0"] == 4 * (1 + 1) + 0.25
    assert seconds["update.0"] == 1 + 0.25
    size = dict(zip(names, grain.coarse.graph.output_bytes.tolist(), strict=True))
    assert size["forward.0"] == 4 * (3 + 3), "both outputs are kept for the backward pass"
    assert size["backward.1"] == 4 * (2 + 2), "a gradient, and the one that it is made from"
    assert size["sum.0"] == 5 + 5
    parcels = {name.partition(",")[0]: size[name] for name in names if "sent" in name}
    assert parcels == {"forward.0": 4 * 3, "backward.1": 4 * 2}


def test_inference_has_forward_stages_only() -> None:
    chain = replace(CHAIN, is_training=False)
    problem, plan = chain.problem(), chain.plan("gpipe")
    assert run(expand_stages(problem, plan)).step_seconds == pytest.approx(simulate(problem, plan).step_seconds)
    assert {name.partition(".")[0] for name in StageGrain(problem, plan).coarse.graph.names} == {"forward"}


@pytest.fixture(scope="module")
def transformer() -> Problem:
    """A captured step of a Transformer on four devices."""
    graph = load_graph("transformer:layers=24,width=512,heads=8,sequence=256,batch=48")
    return timed(Problem(graph, load_cluster("p100:devices=4")))


@pytest.mark.parametrize("replicas", [1, 3])  # four stages; two of three devices and of one
@pytest.mark.parametrize("micro_batches", [4, 16])
@pytest.mark.parametrize("recompute", [False, True])
def test_stage_grain_is_near_op_grain(transformer: Problem, micro_batches: int, recompute: bool, replicas: int) -> None:
    """P21: time within 2%, peaks within 20%."""
    plan = GPipe(micro_batches=micro_batches, order="early_backward_a", recompute=recompute).place(transformer).plan
    if replicas > 1:  # the first three stages become one on three devices
        devices = tuple((0, 1, 2) if stage < 3 else (3,) for stage in plan.schedule.stages)
        stages = tuple(int(stage == 3) for stage in plan.schedule.stages)
        again = (0, 1) if recompute else ()
        plan = Plan(devices, schedule=replace(plan.schedule, stages=stages, recompute=again))
    fine, coarse = simulate(transformer, plan), run(expand_stages(transformer, plan))
    assert coarse.step_seconds == pytest.approx(fine.step_seconds, rel=0.02)
    assert coarse.peak_bytes == pytest.approx(fine.peak_bytes, rel=0.2)
    assert coarse.held_bytes == pytest.approx(fine.held_bytes)
    assert 20 * len(coarse.problem.graph) < len(fine.problem.graph)
