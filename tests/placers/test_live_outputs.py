"""What the decoder counts of outputs that live for a part of the step."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.costs.costs import costs_of
from envs.prepared_problem import PreparedProblem
from envs.simulation.held_memory import HeldMemory
from envs.simulation.simulator import Simulator
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.learned.sequential.layout import RolloutLayout
from placers.learned.sequential.policy import SequentialPolicy
from placers.learned.sequential.state import GIVEN, Rollouts, Sampling
from tests.drawn import examples
from tests.oracle.toys import random_graph, toy_cluster, toy_graph
from tests.placers.bold import NETWORK, bold
from training.problems.random.random_problem import world_problems

LIVE = f"{NETWORK},live_outputs=true"


def bold_with_live_outputs(seed: int = 0) -> SequentialPolicy:
    policy = SequentialPolicy.new(LIVE, seed)
    policy.load_state_dict(bold(seed).state_dict())
    return policy


def layout_of(problem: Problem) -> RolloutLayout:
    return RolloutLayout.of(problem, costs_of(problem), live_outputs=True)


def filled(problem: Problem, placement: list[int]) -> float:
    """The share of memory that the fullest device needs, as the roll-out counts it."""
    policy = bold_with_live_outputs()
    batch = policy.stack([policy.view(problem)])
    rollouts = Rollouts.room_for(batch.layouts[0], 1, keep=True)
    rollouts.placements[0] = placement
    sampling = Sampling.of(GIVEN, np.zeros((1, len(placement))), np.full((1, len(placement)), -1))
    with torch.no_grad():
        policy._run(batch.layouts[0], policy(batch.encoded)[0], sampling, rollouts)
    return float(rollouts.filled[0])


def plainly_filled(problem: Problem, placement: list[int]) -> float:
    """The same, op by op."""
    graph, layout, held = problem.graph, layout_of(problem), HeldMemory.of(problem)
    pairs = zip(graph.edges.tolist(), graph.control.tolist(), strict=True)
    edges = [(u, v, control) for (u, v), control in pairs if graph.phase[u] == graph.phase[v] == 0]
    forward, sends = {(u, v) for u, v, _ in edges}, {(u, int(graph.units[v])) for u, v, control in edges if not control}
    unit, size = graph.units.tolist(), graph.occupied_bytes.tolist()
    waiting = {op: {unit[v] for u, v in forward if u == op and unit[v] != unit[op]} for op in range(len(graph))}
    trains = bool((graph.phase != 0).any())

    def lasts(op: int) -> int:
        """The tensors that wait: of a training step a gradient for each reader, of a forward pass the output."""
        return len(waiting[op]) if trains else bool(waiting[op])

    weights, outputs, fullest, live = ([0.0] * len(problem.cluster) for _ in range(4))
    present, arrived, placed = set[tuple[int, int]](), set[tuple[int, int]](), set[int]()
    for one in layout.order.tolist():
        device = placement[one]
        for tensor in set(held.tensors_of(one).tolist()) - {each for each, there in present if there == device}:
            present.add((tensor, device))
            (weights if tensor < len(graph.weights) else outputs)[device] += float(held.tensor_bytes[tensor])
        read = {u for u, v in forward if unit[v] == one and unit[u] != one}
        copies = {u for u in read if (u, one) in sends and unit[u] in placed and (u, device) not in arrived}
        arrived |= {(u, device) for u in copies}
        now = outputs[device] + live[device] + sum(size[u] for u in copies)
        ops = layout.ops[layout.op_start[one] : layout.op_start[one + 1]].tolist()
        for number, op in enumerate(ops):
            there = [
                each for each in ops[: number + 1]
                if waiting[each] or each == op or any((each, later) in forward for later in ops[number:])
            ]  # fmt: skip
            fullest[device] = max(fullest[device], now + sum(size[each] for each in there))
        fullest[device] = max(fullest[device], now)
        live[device] += sum(size[op] * lasts(op) for op in ops)
        placed.add(one)
        arrived |= {(op, device) for op in ops}
        for op in read:
            before = lasts(op)
            waiting[op].remove(one)
            if unit[op] in placed:
                live[placement[unit[op]]] -= size[op] * (before - lasts(op))
    needed = np.add(weights, np.maximum(fullest, outputs))
    return float((needed / problem.cluster.memory_bytes).max())


@settings(max_examples=examples(12, 8), deadline=None)
@given(st.sampled_from(("tree", "fan", "layered", "elimination", "attention")), st.integers(0, 50))
def test_a_roll_out_counts_what_plain_python_counts(kind: str, seed: int) -> None:
    [problem] = world_problems([kind], seed=seed, count=1)
    if len(problem.graph) > 400:
        return
    placement: list[int] = np.random.default_rng(seed).integers(0, len(problem.cluster), len(problem.units)).tolist()
    assert filled(problem, placement) == pytest.approx(plainly_filled(problem, placement), rel=1e-9)


def with_seconds(graph: OpGraph, seed: int) -> OpGraph:
    """The graph with times that no two ops share, so that one device has one order."""
    seconds = np.random.default_rng(seed).uniform(0.1, 1.0, len(graph))
    edges = [(int(u), int(v)) for u, v in graph.edges]
    return toy_graph(seconds.tolist(), edges, output_bytes=graph.output_bytes.tolist())


@settings(max_examples=examples(40, 9), deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 24))
def test_a_forward_pass_on_one_device_needs_what_is_simulated(seed: int, ops: int) -> None:
    problem = Problem(with_seconds(random_graph(ops, seed=seed), seed), toy_cluster(1))
    peak = Simulator(problem).run(np.zeros(ops, np.int64)).peak_bytes[0]
    assert layout_of(problem).live.alone == pytest.approx(peak)
    assert filled(problem, [0] * ops) == pytest.approx(peak / 100.0)


def test_three_outputs_of_a_chain() -> None:
    """4 bytes, then 4 and 3, then 3 and 2; on two devices the copy of the first is counted as well."""
    problem = Problem(toy_graph([3, 2, 1], [(0, 1), (1, 2)], output_bytes=[4, 3, 2]), toy_cluster(2))
    assert layout_of(problem).live.alone == 7
    assert filled(problem, [0, 0, 0]) == pytest.approx(0.07)
    assert filled(problem, [0, 1, 1]) == pytest.approx(0.07)
    assert filled(problem, [0, 0, 1]) == pytest.approx(0.07)
    assert filled(problem, [0, 1, 0]) == pytest.approx(0.07)
    assert RolloutLayout.of(problem, costs_of(problem)).live.alone == 0, "without a backward pass nothing is held"


@settings(max_examples=examples(15, 8), deadline=None)
@given(st.integers(0, 1000), st.integers(2, 20), st.integers(1, 4))
def test_where_memory_has_no_limit_nothing_changes(seed: int, ops: int, devices: int) -> None:
    problem = Problem(random_graph(ops, seed=seed), toy_cluster(devices, memory=float("inf")))
    held, live = (policy.candidates(problem, 4, seed) for policy in (bold(seed), bold_with_live_outputs(seed)))
    assert np.array_equal(held, live)


def test_more_plans_fit_where_memory_binds() -> None:
    fits = {}
    for policy in (bold(), bold_with_live_outputs()):
        problems = world_problems(["layered", "tree", "fan"], seed=5, count=12)
        outcomes = [PreparedProblem(each).outcomes(policy.candidates(each, 8, 0)) for each in problems]
        fits[policy.shape.live_outputs] = np.mean([each.fits.mean() for each in outcomes])
    assert fits[True] > fits[False]
