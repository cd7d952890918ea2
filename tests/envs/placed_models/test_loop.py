"""A model that is run by a plan, as the runtime `parallelize` has it: in the order in which PyTorch issues it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from envs.placed_models.call_placement import on_calls
from envs.plans.plan import Plan
from envs.simulation.simulator import Simulator, simulate
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.op_graph import Phase
from graphs.problem import Problem
from graphs.runtime import Runtime, runtime_of
from tests.envs.placed_models.models import MODELS, captured, random_run

LOOP = {defer: runtime_of(f"parallelize:host=none,defer={str(defer).lower()}") for defer in (False, True)}


@pytest.mark.parametrize("defer", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", MODELS)
def test_devices_run_one_op_at_a_time_and_calls_in_their_order(name: str, seed: int, defer: bool) -> None:
    run = random_run(name, seed)
    problem = replace(run.problem, runtime=LOOP[defer])
    graph, timeline = problem.graph, simulate(problem, run.plan)
    for device in range(len(problem.cluster)):
        own = np.flatnonzero((timeline.finish > timeline.start) & (timeline.placement == device))
        in_order = own[np.argsort(timeline.start[own])]
        assert (timeline.start[in_order][1:] >= timeline.finish[in_order][:-1]).all()
        forward = in_order[graph.phase[in_order] == Phase.FORWARD]
        assert forward.tolist() == sorted(forward.tolist())  # the order of the calls


@pytest.mark.parametrize("runtime", LOOP.values())
@pytest.mark.parametrize("name", ["gpt", "conv"])
def test_on_one_device_no_order_matters(name: str, runtime: Runtime) -> None:
    problem = Problem(captured(name), load_cluster("p100x2"))
    alone = Plan.of([0] * len(problem.graph))
    step = simulate(problem, alone).step_seconds
    assert simulate(replace(problem, runtime=runtime), alone).step_seconds == pytest.approx(step)


@pytest.mark.parametrize("host", ["10us", "none"])
def test_on_one_device_nothing_is_deferred(host: str) -> None:
    """No other device waits for a gradient, and the loop is the model's own: alone, in a batch, and in a timeline."""
    problem = Problem(captured("gpt"), load_cluster("p100x2"))
    deferring, plain = (
        Simulator(replace(problem, runtime=runtime_of(f"parallelize:host={host},defer={defer}")))
        for defer in ("true", "false")
    )
    units = problem.graph.num_units
    placements = np.array([[0] * units, np.arange(units) % 2, [1] * units])
    found, own = deferring.run_batch(placements), plain.run_batch(placements[[0, 2]])
    assert (
        found.step_seconds[[0, 2]].tolist() == own.step_seconds.tolist() == deferring.seconds(placements)[::2].tolist()
    )
    assert found.peak_bytes[[0, 2]].tolist() == own.peak_bytes.tolist()
    assert found.step_seconds[1] == deferring.run(placements[1]).step_seconds != plain.run(placements[1]).step_seconds
    assert deferring.timeline(placements[2]).start.tolist() == plain.timeline(placements[2]).start.tolist()
    assert deferring.op_times(placements[0])[0].tolist() == plain.op_times(placements[0])[0].tolist()
    factors = np.full((1, len(problem.graph)), 2.0), np.ones((1, len(problem.graph.moved_bytes)))
    assert (
        deferring.noisy_seconds(placements[0], *factors).tolist()
        == plain.noisy_seconds(placements[0], *factors).tolist()
    )


def three_layers(*, hidden_first: bool = False) -> tuple[Problem, Plan]:
    """On 0, 1 and 0; each op takes a second, updates and transfers none."""
    layers = [nn.Linear(4, 4, bias=False) for _ in range(3)]
    model, x = nn.Sequential(*layers), torch.ones(2, 4)
    if hidden_first:
        model, x = nn.Sequential(nn.Embedding(4, 4), *layers), torch.zeros(2, dtype=torch.long)
    first = int(hidden_first)
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
    names = tuple(f"{layer}/" for layer in range(first, first + 3))
    takes = np.array([name.startswith(names) for name in graph.names]) & (graph.phase < Phase.UPDATE)
    problem = Problem(graph, near, op_seconds=np.repeat(takes[:, None].astype(float), 2, axis=1))
    given = Plan.of([1 if name.startswith(f"{first + 1}/") else 0 for name in graph.names])
    problem, plan, _ = on_calls(problem, given, model)
    return problem, plan


def test_gradients_of_inputs_are_sent_after_those_of_weights_unless_these_wait() -> None:
    problem, plan = three_layers()
    # forward 0 1 2, then 2: input and weight; 1: input and weight; 0: weight
    whole, waiting = (simulate(replace(problem, runtime=LOOP[defer]), plan) for defer in (False, True))
    assert whole.step_seconds == 8.0
    # while 1 computes its gradient of the input, 0 computes that of its last weight
    assert waiting.step_seconds == 6.0
    assert waiting.start[list(problem.graph.names).index("2/mm_2.grad_weight")] == 4.0


def test_a_gradient_of_a_weight_waits_only_while_there_is_other_work() -> None:
    """Below the first layer is a look-up, whose gradient needs that of the first layer's input.

    Device 0 has nothing else to issue than the gradient of its last weight until 1 has sent, and then goes on.
    """
    problem, plan = three_layers(hidden_first=True)
    waiting = simulate(replace(problem, runtime=LOOP[True]), plan)
    names = list(problem.graph.names)
    ran = [names[op] for op in np.lexsort((np.arange(len(names)), waiting.start)) if waiting.placement[op] == 0]
    ran = [name for name in ran if ".grad" in name and name[0] in "13"]
    assert ran == ["3/mm_2.grad", "3/mm_2.grad_weight", "1/mm.grad", "1/mm.grad_weight"]
    assert waiting.step_seconds == 3 + 1 + 1 + 2
