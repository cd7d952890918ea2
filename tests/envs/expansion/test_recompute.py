"""Recomputation: what it takes, when it begins, and what a stage then keeps."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from envs.expansion.expanded import Expansion, Role
from envs.plans.plan import Plan
from envs.plans.schedule import Recomputing, Schedule
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from graphs.runtime import PROGRAM
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


# ---- block by block --------------------------------------------------------------------------------------------------


def chain_of_blocks(blocks: int, sizes: tuple[float, ...]) -> OpGraph:
    """Blocks of ops of a second each, with outputs of some bytes, and their gradients, of two seconds, which read what
    their op reads and makes. The loss, which takes no time, follows the last block.
    """
    each, count = len(sizes), blocks * len(sizes)
    names = [f"blocks.{block}/op{op}" for block in range(blocks) for op in range(each)]
    names += ["loss", "loss.grad", *(f"{name}.grad" for name in reversed(names))]
    edges = [(op, op + 1) for op in range(2 * count + 1)]
    edges += [(read, 2 * count + 1 - op) for op in range(count) for read in (op - 1, op) if read >= 0]
    return OpGraph(
        "blocks", tuple(names), ("toy",) * len(names), np.array([1.0] * count + [0.0] * 2 + [2.0] * count),
        np.zeros(len(names)), np.array([*sizes * blocks, *[0.0] * (count + 2)]), np.array(edges),
        phase=np.repeat([Phase.FORWARD, Phase.BACKWARD], count + 1),
        mirror=np.array([-1] * (count + 1) + list(range(count, -1, -1))),
    )  # fmt: skip


@pytest.mark.parametrize("order", ["gpipe", "early_backward_a"])
@pytest.mark.parametrize("micro_batches", [1, 4])
@pytest.mark.parametrize("blocks", [2, 6])
def test_blocks_keep_what_enters_each_and_one_of_them_is_whole(blocks: int, micro_batches: int, order: str) -> None:
    """Chen et al. 2016, 3.1: as many borders as blocks, and the inside of one."""
    problem = Problem(chain_of_blocks(blocks, (20.0, 28.0, 4.0)), toy_cluster(1))
    steps = {
        at: simulate(problem, Plan(((0,),) * len(problem.graph), PROGRAM, schedule=schedule))
        for at, schedule in {
            "kept": Schedule(micro_batches, order=order),
            "block": Schedule(micro_batches, order=order, recompute=(0,), recompute_at="block"),
            "late": Schedule(micro_batches, order=order, recompute=(0,)),
        }.items()
    }
    seconds, peaks = ({at: got(step) for at, step in steps.items()} for got in (
        lambda step: step.step_seconds, lambda step: float(step.peak_bytes[0]) * micro_batches,
    ))  # fmt: skip
    assert seconds["kept"] == pytest.approx(blocks * 3 * (1 + 2))
    assert seconds["block"] == pytest.approx(blocks * 3 * (1 + 1 + 2))
    flying = micro_batches if order == "gpipe" else 1
    assert peaks["kept"] == pytest.approx(flying * blocks * 52)
    # the output of the last block is kept for the loss alone
    assert peaks["block"] == pytest.approx(flying * (blocks - 1) * 4 + 52)
    assert peaks["late"] >= blocks * 52  # a stage is computed again as a whole


class Blocks(nn.Module):
    """Residual blocks between two linear layers, checkpointed or not."""

    def __init__(self, *, checkpointed: bool) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(32, 32), nn.Linear(32, 10)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32)) for _ in range(4)
        )
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x))
        loss: Tensor = self.head(x).square().mean()
        return loss


def test_a_plan_by_blocks_takes_what_the_model_with_checkpoints_takes() -> None:
    """Both in time and memory, to the same bits: what is computed again, and when, is found in two ways."""
    plain, checkpointed = (
        Problem(training_step(capture(Blocks(checkpointed=has), (torch.randn(64, 32),), name="net")), toy_cluster(1))
        for has in (False, True)
    )
    on = ((0,),) * len(plain.graph)
    kept = simulate(plain, Plan(on, PROGRAM))
    planned = simulate(plain, Plan(on, PROGRAM, Schedule(recompute=(0,), recompute_at="block")))
    expected = simulate(checkpointed, Plan(((0,),) * len(checkpointed.graph), PROGRAM))
    assert planned.step_seconds == expected.step_seconds > kept.step_seconds
    assert planned.peak_bytes.tolist() == expected.peak_bytes.tolist()
    assert planned.peak_bytes[0] < kept.peak_bytes[0]


def test_what_are_no_blocks_is_refused() -> None:
    again = Schedule(recompute=(0,), recompute_at="block")
    graph = chain_of_blocks(2, (4.0, 4.0))
    plan = Plan(((0,),) * len(graph), PROGRAM, again)
    unnamed = replace(graph, names=tuple(f"op{op}" for op in range(len(graph))))
    split = replace(graph, names=("blocks.0/a", "blocks.1/b", "blocks.0/c", *graph.names[3:]))
    for wrong, sentence in (
        (unnamed, "the names of 'blocks' show no blocks"),
        (split, "the block of op 'blocks.0/a' reads what is made of its own results outside of it"),
    ):
        with pytest.raises(InputError) as caught:
            plan.check(Problem(wrong, toy_cluster(1)))
        assert sentence in str(caught.value)
        assert "use recompute_at 'late', by which whole stages" in str(caught.value)
