"""What a program that runs pipelines adds to each pass: steps drawn by hand, closed forms, and plans without passes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.pipelines.grain.expand_stages import expand_stages
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY
from envs.simulation.simulator import Simulator, simulate
from graphs.cluster import Cluster
from tests.envs.expansion.pipelines import Pipeline, drawn, servers


def with_passes(cluster: Cluster, *seconds: float) -> Cluster:
    """The cluster, each of whose devices takes so much longer for a pass."""
    pairs = zip(cluster.devices, seconds, strict=True)
    return replace(cluster, devices=tuple(replace(device, pass_seconds=each) for device, each in pairs))


def test_each_pass_takes_longer_forward_and_backward() -> None:
    chain = Pipeline(2, 2)
    step = simulate(chain.problem(with_passes(servers(2), 1, 1)), chain.plan("gpipe"))
    assert drawn(step) == [
        "F0--- F1---             B0--- B1---",
        "      F0--- F1--- B0--- B1---",
    ]


def test_only_the_devices_that_say_so_take_longer() -> None:
    chain = Pipeline(2, 1)
    step = simulate(chain.problem(with_passes(servers(2), 0, 2)), chain.plan("gpipe"))
    assert step.step_seconds == pytest.approx(1 + 3 + 3 + 1)


def test_what_is_computed_again_is_part_of_the_backward_pass() -> None:
    chain = Pipeline(2, 2)
    step = simulate(chain.problem(with_passes(servers(2), 1, 1)), chain.plan("gpipe", recompute=(0, 1)))
    plain = simulate(chain.problem(), chain.plan("gpipe", recompute=(0, 1)))
    assert step.step_seconds == pytest.approx(plain.step_seconds + 3 + 3)


@given(
    order=st.sampled_from(["gpipe", "early_backward_a", "zb_h1", AS_READY]),
    stages=st.integers(2, 4), micro_batches=st.integers(1, 6), forward=st.integers(1, 4), backward=st.integers(1, 4),
    weight_gradient=st.integers(1, 4), longer=st.integers(1, 5),
)  # fmt: skip
def test_a_pass_takes_as_long_as_if_its_first_op_did(
    order: str, stages: int, micro_batches: int, forward: int, backward: int, weight_gradient: int, longer: int
) -> None:
    """Weight gradients are passes of their own in zero-bubble schedules alone."""
    if order == "zb_h1":
        micro_batches = max(micro_batches, stages)
    chain = Pipeline(stages, micro_batches, forward, backward, weight_gradient)
    apart = longer if order == "zb_h1" else 0
    slower = Pipeline(stages, micro_batches, forward + longer, backward + longer, weight_gradient + apart)
    problem = chain.problem(with_passes(servers(stages), *[longer] * stages))
    step = simulate(problem, chain.plan(order)).step_seconds
    assert step == pytest.approx(simulate(slower.problem(), slower.plan(order)).step_seconds)
    written = expand_stages(problem, chain.plan(order))
    assert Simulator(written.problem, order=written.order).run(written.placement).step_seconds == pytest.approx(step)


def test_plans_without_passes_take_what_they_took() -> None:
    chain = Pipeline(2, 1, weights=4.0)
    cluster = with_passes(servers(2), 5, 5)
    placement, replicas = Plan.of([0] * len(chain.graph())), chain.plan(ranks=((0, 1),), replicas=2)
    for plan in (placement, replace(replicas, schedule=replace(replicas.schedule, stages=()))):
        problem, plain = chain.problem(cluster), chain.problem(servers(2))
        assert simulate(problem, plan).step_seconds == simulate(plain, plan).step_seconds


def test_accumulating_gradients_on_one_device_is_made_of_passes() -> None:
    chain = Pipeline(1, 4)
    step = simulate(chain.problem(with_passes(servers(1), 0.5)), chain.plan())
    assert step.step_seconds == pytest.approx(4 * (1.5 + 1.5))
    assert np.isclose(simulate(chain.problem(), chain.plan()).step_seconds, 4 * 2)
