"""Gradients are held once, as long as PyTorch holds them: simulated steps against real ones on fake tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from envs.costs.costs import timed
from envs.pipelines.grain.expand_stages import expand_stages
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule, Sharing
from envs.simulation.simulator import Simulator, simulate
from envs.timelines.timeline import Timeline
from graphs.capture.examples import Example
from graphs.capture.forward import traced_example
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from placers.data_parallel import ONE_BY_ONE
from tests.envs.expansion.pipelines import Pipeline
from tests.oracle.fake_step import held_by_step, loss_of

WIDTH, BATCH, LAYERS = 64, 16, 6
WEIGHT, ROW = WIDTH * WIDTH * 4, WIDTH * 4


def model(layers: int = LAYERS) -> nn.Sequential:
    with torch.device("meta"):
        parts = (nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), nn.ReLU()) for _ in range(layers))
        return nn.Sequential(*parts)


def example(samples: int, layers: int = LAYERS) -> Example:
    with torch.device("meta"):
        return Example(model(layers), (torch.zeros(samples, WIDTH),), {}, "layers", samples)


@cache
def graph(samples: int = BATCH) -> OpGraph:
    return training_step(traced_example(example(samples)).build())


def problem(devices: int = 1, optimizer: str = "sgd") -> Problem:
    return timed(Problem(graph(), load_cluster(f"v100:devices={devices}"), optimizer))


def most(timeline: Timeline, device: int = 0) -> float:
    """Bytes at the peak, in addition to what is held for the whole step."""
    return float(timeline.peak_bytes[device] - timeline.held_bytes[device])


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_of_one_micro_batch_a_gradient_is_held_from_its_op_on(optimizer: str) -> None:
    timeline = simulate(problem(optimizer=optimizer), replace(Plan.of([0] * len(graph())), order=PROGRAM))
    times = {"sgd": 1, "adam": 3}[optimizer]
    assert timeline.held_bytes[0] == times * LAYERS * WEIGHT + BATCH * ROW
    assert timeline.static_bytes[0] == timeline.held_bytes[0] + LAYERS * WEIGHT
    held = held_by_step(example(BATCH), optimizer)
    assert most(timeline) == pytest.approx(held.peak - held.static, rel=0.02)
    peak = timeline.peak(0)
    assert peak.gradients == LAYERS * WEIGHT
    assert peak.state == (times + 1) * LAYERS * WEIGHT
    assert peak.state + peak.activations + peak.inputs == peak.total


@pytest.mark.parametrize("micro_batches", [2, 4])
def test_gradients_of_further_micro_batches_are_added_in_place(micro_batches: int) -> None:
    plan = Plan(((0,),) * len(graph()), PROGRAM, Schedule(micro_batches, order=ONE_BY_ONE))
    held = held_by_step(example(BATCH // micro_batches), "sgd", micro_batches=micro_batches)
    assert most(simulate(problem(), plan)) == pytest.approx(held.peak - held.static, rel=0.02)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_replicas_hold_the_gradients_that_they_make_and_the_parts_that_they_send(micro_batches: int) -> None:
    plan = Plan(((0, 1),) * len(graph()), PROGRAM, Schedule(micro_batches, order=ONE_BY_ONE))
    held = held_by_step(example(BATCH // micro_batches // 2), "sgd", micro_batches=micro_batches)
    timeline = simulate(problem(2), plan)
    sums = timeline.peak(0).sums
    assert 0.98 * (held.peak - held.static) <= most(timeline) <= held.peak - held.static + sums
    assert 0 < sums <= LAYERS * WEIGHT


def stage_step(passes: str) -> Callable[[nn.Module, Any, Any], None]:
    """A step of a stage's module: "F0 F1 B1 B0" are its forward and backward passes, in their order."""

    def step(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        kept: dict[str, tuple[Tensor, Tensor]] = {}
        for each in passes.split():
            kind, number = each[0], each[1:]
            if kind == "F":
                entered = torch.empty_like(args[0]).requires_grad_()
                kept[number] = entered, module(entered)
            else:
                entered, output = kept.pop(number)
                loss_of(output).backward()  # type: ignore[no-untyped-call]
                del entered, output

    return step


@pytest.mark.parametrize(
    ("order", "passes"),
    [
        ("gpipe", "F0 F1 F2 F3 B0 B1 B2 B3"),
        ("looped_bfs", "F0 F1 F2 F3 B3 B2 B1 B0"),
        ("early_backward_a", "F0 B0 F1 B1 F2 B2 F3 B3"),
    ],
)
def test_a_stage_holds_a_gradient_from_the_pass_on_that_makes_it_first(order: str, passes: str) -> None:
    """The second of two stages of three layers."""
    stages = tuple(int((name[0].isdigit() and int(name[0]) >= LAYERS // 2) or "loss" in name) for name in graph().names)
    plan = Plan(tuple((stage,) for stage in stages), PROGRAM, Schedule(4, stages, order))
    timeline = simulate(problem(2), plan)
    held = held_by_step(example(BATCH // 4, LAYERS // 2), "sgd", step=stage_step(passes))
    # which made the inputs of all four micro-batches itself, as does not a device to which they are sent
    assert most(timeline, 1) == pytest.approx(held.peak - held.static, abs=2 * BATCH * ROW)
    assert LAYERS // 2 * WEIGHT < most(timeline, 1) < (LAYERS // 2 + 1) * WEIGHT + 8 * BATCH * ROW


@pytest.mark.parametrize(("order", "first"), [("gpipe", 0), ("looped_bfs", 3)])
def test_what_is_made_first_is_held_until_the_update_has_read_it(order: str, first: int) -> None:
    chain = Pipeline(2, 4, weights=5.0, weight_gradient=1.0, update=1.0)
    timeline = simulate(
        chain.problem(optimizer="sgd"), replace(chain.plan(), schedule=replace(chain.plan().schedule, order=order))
    )
    assert timeline.held_bytes.tolist() == [5, 5]
    assert timeline.peak_bytes.tolist() == [5 + 5 + 5] * 2  # the weight, its gradient, and one that is added to it
    expansion = timeline.expansion
    assert expansion is not None
    made = np.flatnonzero(timeline.problem.weight_memory.gradients & (expansion.micro_batch == first))
    assert len(made) == 2
    for op in made.tolist():
        device = timeline.placement[op]
        times, held = timeline.memory_curve(int(device))
        assert held[(times >= timeline.start[op]) & (times < timeline.step_seconds - 1e-9)].min() >= 10 or device == 1


@pytest.mark.parametrize("sharing", ["split", "turns"])
@pytest.mark.parametrize("update", ["step", "micro_batch"])
def test_each_update_has_its_gradient(sharing: Sharing, update: str) -> None:
    """Of each replica, whichever micro-batches it computes."""
    chain = Pipeline(1, 4, weights=5.0, weight_gradient=1.0, update=1.0)
    schedule = Schedule(4, order="gpipe" if update == "step" else "early_backward_a", sharing=sharing, update=update)  # type: ignore[arg-type]
    given = chain.problem(load_cluster("v100:devices=2"), optimizer="sgd")
    timeline = simulate(given, Plan(((0, 1),) * len(given.graph), schedule=schedule))
    expanded, memory = timeline.problem.graph, timeline.problem.weight_memory
    for op in np.flatnonzero(expanded.phase == Phase.UPDATE).tolist():
        read = expanded.edges[(expanded.edges[:, 1] == op) & ~expanded.control, 0]
        assert memory.gradients[read].tolist() == [True]
        assert timeline.placement[read].tolist() == [timeline.placement[op]]


def test_stages_hold_as_much_at_the_grain_of_stages() -> None:
    stages = tuple(int((name[0].isdigit() and int(name[0]) >= LAYERS // 2) or "loss" in name) for name in graph().names)
    for micro_batches in (1, 4):
        plan = Plan(tuple((stage,) for stage in stages), schedule=Schedule(micro_batches, stages, "gpipe"))
        coarse = expand_stages(problem(2), plan)
        of_stages = Simulator(coarse.problem, order=coarse.order).timeline(coarse.placement)
        of_ops = simulate(problem(2), plan)
        assert of_stages.held_bytes.tolist() == of_ops.held_bytes.tolist()
        assert of_stages.static_bytes.tolist() == of_ops.static_bytes.tolist()
        for device in range(2):
            assert of_stages.peak(device).gradients >= LAYERS // 2 * WEIGHT
            assert most(of_stages, device) == pytest.approx(most(of_ops, device), rel=0.35)


def test_room_is_set_aside_for_gradients_that_no_op_makes() -> None:
    """As in profiles of layers, whose backward ops make the gradient of the input."""
    chain = Pipeline(1, 1, weights=5.0)
    given = chain.problem(optimizer="sgd")
    kinds = tuple("toy.grad" if kind.endswith("grad_weight") else kind for kind in given.graph.kinds)
    without = replace(given, graph=replace(given.graph, kinds=kinds, output_bytes=0.0 * given.graph.output_bytes))
    assert without.weight_memory.bytes.tolist() == [10]
    assert simulate(without, chain.plan()).peak_bytes.tolist() == [10]
