"""Recomputation: what it takes, when it begins, and what a stage then keeps."""

from dataclasses import replace

import numpy as np
import pytest

from envs.expansion.expanded import Expansion, Role
from envs.plans.plan import Plan
from envs.plans.schedule import Recomputing, Schedule
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from tests.envs.expansion.pipelines import Pipeline, drawn, servers
from tests.oracle.toys import toy_cluster


def expansion_of(timeline: Timeline) -> Expansion:
    assert timeline.expansion is not None
    return timeline.expansion


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("micro_batches", [1, 4, 8])
@pytest.mark.parametrize("order", ["gpipe", "early_backward_a", "early_backward_b"])
def test_a_third_more_where_backward_takes_twice_as_long(stages: int, micro_batches: int, order: str) -> None:
    chain = Pipeline(stages, micro_batches, forward=1.0, backward=2.0, activation=1.0)
    kept, again = (
        simulate(chain.problem(), chain.plan(order, recompute=stages_again)).step_seconds
        for stages_again in ((), tuple(range(stages)))
    )
    assert kept == pytest.approx(3 * (micro_batches + stages - 1), rel=1e-12)
    assert again / kept == pytest.approx(4 / 3, rel=1e-12)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("late", ["F0 F1             R0 B0--- R1 B1---", "   F0 F1 R0 B0--- R1 B1---"]),
        ("early", ["F0 F1 R0          B0--- R1 B1---", "   F0 F1 R0 B0--- R1 B1---"]),
    ],
)
def test_recomputation_waits_for_the_gradient_unless_it_is_early(at: Recomputing, expected: list[str]) -> None:
    chain = Pipeline(2, 2, forward=1.0, backward=2.0)
    timeline = simulate(chain.problem(), chain.plan("gpipe", recompute=(0, 1), recompute_at=at))
    assert drawn(timeline) == expected


def two_layers_on_two_devices() -> tuple[Problem, Plan]:
    """Op "in" on one device, and a, b, c on the other, each with an output of one byte that its gradient reads."""
    names = ("in", "a", "b", "c", "c.grad", "b.grad", "a.grad", "in.grad")
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (2, 5), (1, 6), (0, 7)]
    graph = OpGraph(
        "layers", names, ("toy",) * 8, np.array([4.0] * 8), np.zeros(8), np.array([4.0] * 4 + [0.0] * 4),
        np.array(edges), phase=np.repeat([Phase.FORWARD, Phase.BACKWARD], 4),
        mirror=np.array([-1, -1, -1, -1, 3, 2, 1, 0]),
    )  # fmt: skip
    devices = tuple((0,) if name.startswith("in") else (1,) for name in names)
    return Problem(graph, toy_cluster(2)), Plan(devices, schedule=Schedule(4, order="gpipe"))


@pytest.mark.parametrize(("recompute", "kept"), [((), 3 * 4.0), ((1,), 4.0 + 1.0)])
def test_a_stage_keeps_only_what_enters_it(recompute: tuple[int, ...], kept: float) -> None:
    """When the forward passes have ended, and the first op is computed again."""
    problem, plan = two_layers_on_two_devices()
    timeline = simulate(problem, replace(plan, schedule=replace(plan.schedule, recompute=recompute)))
    expansion = expansion_of(timeline)
    is_forward = (expansion.role == Role.WORK) & (expansion.problem.graph.phase == Phase.FORWARD)
    forward_ends = timeline.finish[is_forward & (expansion.placement == 1)].max()
    times, held = timeline.memory_curve(1)
    assert held[np.searchsorted(times, forward_ends, side="right") - 1] == kept
    again = expansion.role == Role.RECOMPUTED
    assert again.sum() == (12 if recompute else 0)  # a, b and c, four times
    assert (timeline.start[again] >= forward_ends).all()


def test_what_takes_no_time_and_reads_nothing_is_kept() -> None:
    problem, plan = two_layers_on_two_devices()
    free = replace(problem.graph, flops=np.array([0.0] + [4.0] * 7))
    plan = replace(plan, schedule=replace(plan.schedule, recompute=(0, 1)))
    again = {
        at: expansion_of(simulate(replace(problem, graph=graph), plan))
        for at, graph in (("takes time", problem.graph), ("is free", free))
    }
    origins = {at: set(each.origin[each.role == Role.RECOMPUTED].tolist()) for at, each in again.items()}
    assert origins == {"takes time": {0, 1, 2, 3}, "is free": {1, 2, 3}}


def test_only_the_stages_that_are_named_are_computed_again() -> None:
    chain = Pipeline(3, 2)
    expansion = expansion_of(simulate(chain.problem(servers(5)), chain.plan(replicas=(1, 2, 2), recompute=(1,))))
    for role in (Role.RECOMPUTED, Role.ARRIVE):
        these = expansion.role == role
        assert set(expansion.stage[these].tolist()) == {1}
        assert sorted(zip(expansion.micro_batch[these].tolist(), expansion.replica[these].tolist(), strict=True)) == [
            (0, 0), (0, 1), (1, 0), (1, 1),
        ]  # fmt: skip
    edges = expansion.problem.graph.edges
    begins, follows = edges[expansion.role[edges[:, 0]] == Role.ARRIVE].T
    for column in (expansion.placement, expansion.micro_batch, expansion.replica):
        assert (column[begins] == column[follows]).all()
