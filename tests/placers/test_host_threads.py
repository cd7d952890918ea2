"""Policies that know the runtime: clocks of threads and devices in a roll-out, and what is seen of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.costs.costs import costs_of, timed
from envs.simulation.bounds import host_bound
from envs.simulation.simulator import Simulator
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.op_graph import Ints, Phase
from graphs.problem import Problem
from graphs.runtime import Runtime, runtime_of
from placers.learned.sequential.decoder_features import Feature
from placers.learned.sequential.host_threads import deferred_ops
from placers.learned.sequential.layout import RolloutLayout
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.sequential.rollout import roll_out
from placers.learned.sequential.state import GIVEN, Rollouts, RolloutState, Sampling
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_cluster, toy_graph
from tests.placers.bold import NETWORK, bold

KNOWING = f"{NETWORK},order=runtime,one_device=true"
SPECS = (
    "ideal", "parallelize:host=none", "parallelize:copies=barrier,host=1s", "parallelize:host=500ms", "run:host=500ms",
    "replay:host=500ms",
)  # fmt: skip


def rolled_out(problem: Problem, placement: Ints, policy: SequentialPolicy) -> tuple[RolloutState, RolloutLayout]:
    """The state after a placement was followed."""
    batch = policy.stack([policy.view(problem)])
    layout, states = batch.layouts[0], policy(batch.encoded)[0].detach()
    layers, rollouts = policy.score_layers(layout, states), Rollouts.room_for(layout, 1, keep=True)
    state, nothing = RolloutState.room_for(layout, layers), np.full((1, len(placement)), -1)
    rollouts.placements[0] = placement
    roll_out(layout, layers, Sampling.of(GIVEN, np.zeros((1, len(placement))), nothing), state, rollouts)
    assert np.isfinite(rollouts.features).all()
    return state, layout


def clocks(problem: Problem, placement: Ints, layout: RolloutLayout) -> tuple[list[float], list[float]]:
    """Devices' and threads' clocks by the same rule, of a forward pass whose units are ops, in plain Python."""
    graph, host, devices = problem.graph, layout.host, len(problem.cluster)
    clock, issued, free = [0.0] * devices, [0.0] * devices, [0.0] * layout.channels.number
    arrival: dict[tuple[int, int], float] = {}
    position = graph.topological_position
    for op in layout.order.tolist():
        here = int(placement[op])
        begin = clock[here]
        producers = sorted({int(a) for a, b in graph.edges if b == op}, key=lambda each: int(position[each]))
        for each in producers:
            there = int(placement[each])
            if (each, here) in arrival:
                continue
            if (each, there) not in arrival:  # it is not placed yet
                continue
            at = arrival[each, there]
            issued[host.thread[there]] += host.send
            issued[host.thread[here]] += host.receive
            if host.streams:
                at = max(at, issued[host.thread[here]], clock[there])
            if host.barrier:
                at = max(at, begin)
            at = max(at, free[layout.channels.between[there, here]]) + layout.latency[there, here]
            at += graph.output_bytes[each] * layout.per_byte[there, here]
            free[layout.channels.between[there, here]] = arrival[each, here] = at
            if host.barrier:
                begin = clock[there] = at
        issued[host.thread[here]] += host.op[op]
        ready = [arrival.get((each, here), float(layout.early[each])) for each in producers]
        begin = max([begin, issued[host.thread[here]], *ready])
        clock[here] = arrival[op, here] = begin + float(layout.op_seconds[op, here])
    return clock, issued


@settings(max_examples=examples(30, 12), deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 20), st.integers(1, 4), st.sampled_from(SPECS))
def test_clocks_are_those_of_plain_python(seed: int, ops: int, devices: int, spec: str) -> None:
    problem = Problem(random_graph(ops, seed), toy_cluster(devices, memory=1e9, latency=0.5), runtime=runtime_of(spec))
    placement = np.random.default_rng(seed).integers(devices, size=ops)
    state, layout = rolled_out(problem, placement, SequentialPolicy.new(KNOWING, 0))
    clock, issued = clocks(problem, placement, layout)
    np.testing.assert_allclose(state.clock, clock, rtol=1e-12)
    np.testing.assert_allclose(state.issued, issued, rtol=1e-12)


@settings(max_examples=examples(20, 8), deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 20), st.integers(2, 4), st.sampled_from(("side", "barrier")))
def test_devices_that_are_streams_end_a_forward_pass_when_the_simulator_says(
    seed: int, ops: int, devices: int, copies: str
) -> None:
    graph = random_graph(ops, seed)
    graph = replace(graph, flops=graph.flops + 1)
    runtime = runtime_of(f"parallelize:host=none,copies={copies}")
    problem = Problem(graph, toy_cluster(devices, memory=1e9, latency=0.5), runtime=runtime)
    placement = np.random.default_rng(seed).integers(devices, size=ops)
    state, _ = rolled_out(problem, placement, SequentialPolicy.new(KNOWING, 0))
    assert state.clock.max() == pytest.approx(Simulator(problem).run(placement).step_seconds, rel=1e-9)


@settings(max_examples=examples(20, 8), deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 20), st.sampled_from((*SPECS, "parallelize", "run")))
def test_everything_on_one_device_takes_what_the_simulator_says(seed: int, ops: int, spec: str) -> None:
    """In a loop it is run without a plan, which takes a thread no longer for each call."""
    problem = Problem(random_graph(ops, seed), toy_cluster(2, memory=1e9, launch=0.25), runtime=runtime_of(spec))
    costs = costs_of(problem)
    layout = RolloutLayout.of(problem, costs, "runtime")
    alone = Simulator(problem).run([0] * ops).step_seconds
    longer = problem.hold_seconds[0] * (costs.op_seconds[:, 0] > 0).any()  # nothing waits for the last launch
    assert layout.host.alone[0] - longer == pytest.approx(alone, rel=1e-9)
    assert host_bound(problem, costs.op_seconds) <= alone * (1 + 1e-9)


@settings(max_examples=examples(15, 6), deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 15), st.integers(2, 4), st.sampled_from(SPECS))
def test_no_placement_beats_the_bound_of_threads(seed: int, ops: int, devices: int, spec: str) -> None:
    problem = Problem(random_graph(ops, seed), toy_cluster(devices, memory=1e9), runtime=runtime_of(spec))
    placements = np.random.default_rng(seed).integers(devices, size=(10, ops))
    bound = host_bound(problem, costs_of(problem).op_seconds)
    assert bound <= Simulator(problem).seconds(placements).min() * (1 + 1e-9)
    assert (bound > 0) == (problem.host is not None and bool(problem.graph.flops.any()))


@pytest.mark.parametrize("spec", ["parallelize:host=1s", "run:host=1s", "parallelize:host=none"])
def test_a_policy_that_knows_no_runtime_sees_nothing_of_it(spec: str) -> None:
    """It sees the machine as it did: program order and longest path are one to it, as far as no rule is a feature."""
    order = "program" if spec.startswith("parallelize") else "longest_path"
    for seed in range(3):
        without = Problem(random_graph(16, seed), toy_cluster(3), runtime=runtime_of(f"ideal:order={order}"))
        hosted = replace(without, runtime=runtime_of(spec))
        policy = bold(seed)
        state, layout = rolled_out(hosted, policy.candidates(without, 1, 0)[0], policy)
        assert not layout.host.clocked
        assert not state.issued.any()
        assert policy.candidates(hosted, 4, 0).tolist() == policy.candidates(without, 4, 0).tolist()


def test_units_are_placed_in_program_order_where_devices_run_that() -> None:
    graph = toy_graph([1, 1, 5, 1], [(0, 1), (0, 2), (1, 3), (2, 3)])
    for spec, order in (("parallelize:host=none", [0, 1, 2, 3]), ("run:host=none", [0, 2, 1, 3])):
        problem = Problem(graph, toy_cluster(2), runtime=runtime_of(spec))
        assert SequentialPolicy.new(KNOWING, 0).view(problem)[1].order.tolist() == order


def test_what_is_seen_of_threads() -> None:
    """The thread takes 3 s for each of two ops of 1 s: the second could start 3 s before its launch, with the copy."""
    runtime = runtime_of("parallelize:host=3s")
    problem = Problem(toy_graph([1, 1], [(0, 1)]), toy_cluster(2), runtime=runtime)
    policy = SequentialPolicy.new(KNOWING, 0)
    batch = policy.stack([policy.view(problem)])
    scale = batch.layouts[0].scale
    assert scale == host_bound(problem, costs_of(problem).op_seconds) == 6.0
    given_ = torch.tensor([[[0, 1]]])
    trace = policy.follow(batch, given_, torch.full_like(given_, -1)).trace
    seen = trace.features[-2:].numpy()
    expected = [4 - 6, 8 - 9]  # inputs are there after 4 s, and on the other device, after a copy of 1 s, 6 s + 1 s
    expected[1] = 7 - 9
    signed = [np.sign(x) * np.log1p(10 * abs(x) / scale) for x in expected]
    np.testing.assert_allclose(seen[:, Feature.HOST_AHEAD], signed, rtol=1e-5)
    np.testing.assert_allclose(seen[:, Feature.HOST_COPIES], [0, np.log1p(10 * 3 / scale)], rtol=1e-5)


def loop_of_a_small_model(runtime: Runtime) -> Problem:
    """A training step in which some gradients of weights wait."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 64))
    graph = training_step(capture(model, (torch.zeros(4096, 64),), name="small"))
    return timed(Problem(graph, load_cluster("p100x2"), runtime=runtime))


def test_everything_is_finite_and_differs_with_the_runtime() -> None:
    policy, seen = bold(1, KNOWING), []
    for spec in ("parallelize", "parallelize:defer=false", "run", "replay", "ideal"):
        problem = Problem(random_graph(12, 1), toy_cluster(3), runtime=runtime_of(spec))
        batch = policy.stack([policy.view(problem)])
        assert torch.isfinite(batch.encoded.units).all()
        assert np.isfinite(policy.likelihoods(batch, policy.candidates(problem, 4, 0))).all()
        seen.append(batch.encoded.units.numpy().tobytes())
    assert len({*seen}) == len(seen) - 1, "nothing waits in a forward pass, whether it could or not"


def test_a_training_step_on_one_device_takes_what_the_simulator_says() -> None:
    for spec in ("parallelize", "parallelize:defer=false", "run", "ideal"):
        problem = loop_of_a_small_model(runtime_of(spec))
        layout = RolloutLayout.of(problem, costs_of(problem), "runtime")
        alone = Simulator(problem).run(np.zeros(len(problem.units), np.int64)).step_seconds
        # nothing waits for the last launch
        assert layout.host.alone[0] - problem.hold_seconds[0] == pytest.approx(alone, rel=1e-9)


def test_a_thread_takes_longer_for_what_is_run_by_a_plan_and_what_waits() -> None:
    problem = loop_of_a_small_model(runtime_of("parallelize"))
    host, graph, costs = problem.host, problem.graph, costs_of(problem)
    assert host is not None
    plain, waits = replace(problem, runtime=problem.runtime.on_one_device), deferred_ops(problem, costs)
    longer, shorter = (RolloutLayout.of(each, costs, "runtime").host.op for each in (problem, plain))
    assert waits.any()
    called = (graph.phase == Phase.FORWARD) & (costs.op_seconds[:, 0] > 0)
    more = np.where(called, host.placed, 0.0)  # the module is small, and each of its calls is seen
    more[waits] += host.deferral
    more[graph.mirror[waits]] += host.deferral
    np.testing.assert_allclose(longer - shorter, more)
