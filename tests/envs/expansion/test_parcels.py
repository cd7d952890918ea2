"""Passes that send what they make for other stages when all of them has ended."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from envs.expansion.expand import expand
from envs.expansion.expanded import Expansion, Role
from envs.pipelines.grain.expand_stages import expand_stages
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from envs.timelines.timeline import Timeline
from graphs.op_graph import Phase
from graphs.problem import Problem
from graphs.runtime import IDEAL, runtime_of
from tests.envs.expansion.pipelines import Pipeline, interleaved, servers, v_shaped

AT_END = replace(runtime_of("torch-pipelining:host=none,order=longest_path"), all_reduce=IDEAL.all_reduce)
GRAINS = [expand, expand_stages]

Expand = Callable[[Problem, Plan], Expansion]


def timed(expanded: Expand, problem: Problem, plan: Plan) -> Timeline:
    written = expanded(problem, plan)
    return Simulator(written.problem, order=written.order).timeline(written.placement)


@pytest.mark.parametrize("expanded", GRAINS)
def test_a_pipeline_of_one_micro_batch_overlaps_nothing(expanded: Expand) -> None:
    """Three stages of 1 + 2 + 3 seconds; where gradients leave early, weight gradients are beside those of others."""
    pipeline = Pipeline(3, forward=1, backward=2, weight_gradient=3)
    problem, plan = pipeline.problem(), pipeline.plan("gpipe")
    assert timed(expanded, problem, plan).step_seconds == 3 * (1 + 2) + 3
    assert timed(expanded, replace(problem, runtime=AT_END), plan).step_seconds == 3 * (1 + 2 + 3)


@pytest.mark.parametrize("expanded", GRAINS)
@pytest.mark.parametrize(
    ("pass_order", "stages", "more"),
    [
        ("gpipe", 3, {}),
        ("early_backward_a", 4, {}),
        ("early_backward_a", 3, {"recompute": (0, 2)}),
        ("gpipe", 3, {"replicas": (2, 1, 3)}),
        ("early_backward_a", 2, {"replicas": (2, 2), "sharing": "turns"}),
        ("interleaved", 4, {"ranks": interleaved(2)}),
        ("zb_v", 4, {"ranks": v_shaped(2)}),
    ],
)
def test_passes_are_as_if_each_were_one_op(
    expanded: Expand, pass_order: str, stages: int, more: dict[str, Sequence[object]]
) -> None:
    """A backward pass of two ops takes what one op takes; a divided one sends after its first part in any runtime."""
    apart = Pipeline(stages, 6, forward=6, backward=12, weight_gradient=18, activation=6, gradient=6)
    is_divided = pass_order == "zb_v"
    whole = apart if is_divided else replace(apart, backward=30, weight_gradient=0)
    cluster = servers(8, latency=0.5, bandwidth=2.0)
    plan = apart.plan(pass_order, **more)  # type: ignore[arg-type]  # what a plan of these stages has
    found = timed(expanded, replace(apart.problem(cluster), runtime=AT_END), plan)
    expected = timed(expanded, whole.problem(cluster), plan)
    assert found.step_seconds == expected.step_seconds
    if not is_divided:
        assert found.step_seconds > timed(expanded, apart.problem(cluster), plan).step_seconds


@pytest.mark.parametrize("expanded", GRAINS)
def test_where_each_pass_is_one_op_every_runtime_takes_the_same_step(expanded: Expand) -> None:
    """As in measured profiles of layers: what is sent is there when the pass ends, and no loop makes any copies."""
    pipeline = Pipeline(3, 4, forward=[1, 2, 3], backward=4, activation=3, gradient=2)
    problem, plan = pipeline.problem(servers(3, latency=0.5, bandwidth=2.0)), pipeline.plan("early_backward_a")
    specs = ("parallelize", "parallelize:copies=barrier,defer=false", "run", "torch-pipelining", "megatron")
    runtimes = [runtime_of(spec).with_knobs(host="none") for spec in specs]
    seconds = {timed(expanded, replace(problem, runtime=each), plan).step_seconds for each in (IDEAL, *runtimes)}
    assert len(seconds) == 1


def test_what_leaves_early_has_to_wait_on_its_device() -> None:
    """An op of the pass makes what the next stage reads, and another op runs after it; both outputs are then there."""
    pipeline = Pipeline(2, forward=1, backward=2, weight_gradient=3, gradient=100, weights=1)
    problem, plan = pipeline.problem(servers(2, bandwidth=100.0)), pipeline.plan("gpipe")
    early, late = simulate(problem, plan), simulate(replace(problem, runtime=AT_END), plan)
    assert early.transfers.start.max() == 2 + 2  # after both forward passes and the gradient
    assert late.transfers.start.max() == 2 + 2 + 3
    assert late.expansion is not None
    assert (late.expansion.role == Role.PARCEL).sum() == 2
    assert late.step_seconds == 2 + 5 + 1 + 5


def test_sums_of_gradients_do_not_wait() -> None:
    """Replicas add up gradients while the backward pass goes on, as DistributedDataParallel does."""
    pipeline = Pipeline(2, 2, backward=2, weight_gradient=3, weights=60)
    problem, plan = pipeline.problem(servers(2, bandwidth=10.0)), pipeline.plan("gpipe", ranks=((0, 1),), replicas=2)
    early, late = simulate(problem, plan), simulate(replace(problem, runtime=AT_END), plan)
    assert np.array_equal(early.start, late.start)
    assert late.transfers.start.min() < late.finish[late.problem.graph.phase == Phase.BACKWARD].max() - 5
