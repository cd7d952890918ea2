"""The order in which PyTorch issues a step: devices follow it strictly, and nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from envs.placed_models.autograd_step import as_autograd_runs
from envs.placed_models.call_placement import on_calls
from envs.placed_models.issue_order import as_issued
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.op_graph import Phase
from graphs.problem import Problem
from tests.envs.placed_models.models import MODELS, captured, random_run


def issued(name: str, seed: int, *, defer: bool) -> tuple[Problem, Plan, Timeline]:
    run = random_run(name, seed)
    problem, plan = as_issued(run.problem, run.plan, defer=defer)
    return problem, plan, simulate(problem, plan)


def sent(timeline: Timeline) -> list[tuple[str, int, int]]:
    moved, names = timeline.transfers, timeline.problem.graph.names
    ends = zip(moved.source.tolist(), moved.destination.tolist(), strict=True)
    return sorted((names[op], *pair) for op, pair in zip(moved.producer.tolist(), ends, strict=True))


@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", MODELS)
def test_devices_do_what_was_issued_first_and_send_what_autograd_sends(name: str, seed: int, defer: bool) -> None:
    problem, plan, timeline = issued(name, seed, defer=defer)
    graph, run = problem.graph, random_run(name, seed)
    place = np.asarray(plan.order)
    is_work = timeline.finish > timeline.start
    for device in range(len(problem.cluster)):
        own = np.flatnonzero(is_work & (timeline.placement == device))
        in_order = own[np.argsort(place[own])]
        assert (timeline.start[in_order][1:] >= timeline.finish[in_order][:-1]).all()
        forward = in_order[graph.phase[in_order] == Phase.FORWARD]
        assert forward.tolist() == sorted(forward.tolist())  # the order of the calls
    assert sent(timeline) == sent(simulate(*as_autograd_runs(run.problem, run.plan)))


@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("name", ["gpt", "conv"])
def test_on_one_device_no_order_matters(name: str, defer: bool) -> None:
    problem = Problem(captured(name), load_cluster("p100x2"))
    alone = Plan.of([0] * len(problem.graph))
    step = simulate(problem, alone).step_seconds
    assert simulate(*as_issued(problem, alone, defer=defer)).step_seconds == pytest.approx(step)


def test_gradients_of_inputs_are_sent_after_those_of_weights_unless_these_wait() -> None:
    """Three layers, on 0, 1 and 0: by hand. Each op takes a second, updates and transfers none."""
    model, x = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(3))), torch.ones(2, 4)
    graph = training_step(capture(model, (x,), name="three"))
    cluster = load_cluster("p100x2")
    devices = tuple(replace(device, launch_seconds=0.0) for device in cluster.devices)
    near = replace(
        cluster,
        devices=devices,
        latency=np.zeros((2, 2)),
        bandwidth=np.full((2, 2), np.inf),
        gap=np.zeros(len(cluster.gap)),
    )
    takes = np.array([name.startswith(("0/", "1/", "2/")) for name in graph.names]) & (graph.phase < Phase.UPDATE)
    problem = Problem(graph, near, op_seconds=np.repeat(takes[:, None].astype(float), 2, axis=1))
    given = Plan.of([1 if name.startswith("1/") else 0 for name in graph.names])
    problem, plan, _ = on_calls(problem, given, model)
    # forward 0 1 2, then 2: input and weight; 1: input and weight; 0: weight
    assert takes.sum() == 3 + 2 + 2 + 1
    whole, waiting = (simulate(*as_issued(problem, plan, defer=defer)) for defer in (False, True))
    assert whole.step_seconds == 8.0
    # while 1 computes its gradient of the input, 0 computes that of its last weight
    assert waiting.step_seconds == 6.0
    assert waiting.start[list(problem.graph.names).index("2/mm_2.grad_weight")] == 4.0
