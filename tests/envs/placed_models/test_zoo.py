"""Training steps as people write them, run by random plans: as the model itself, whatever they detach or freeze."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from envs.placed_models import parallel
from envs.placed_models.call_placement import on_calls
from envs.placed_models.parallel import run_by_plan
from envs.plans.plan import Plan
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.problem import Problem
from tests.envs.placed_models.models import WAITING
from tests.envs.placed_models.streams_recorder import RecordedStreams, Recorder
from tests.graphs.zoo import ZOO

PLANS, FAST = 50, {"VQ-VAE": 2, "LoRA Llama": 1}
RUNS = [pytest.param(name, FAST[name]) for name in FAST]
RUNS += [pytest.param(name, PLANS, marks=pytest.mark.slow) for name in ZOO]


def trained(module: nn.Module, inputs: tuple[Any, ...]) -> Any:
    """The losses and gradients of five steps of Adam, and the state after these."""
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    # larger than the rounding of gradients, by which it would divide where these are zero
    optimizer, found = torch.optim.Adam(weights, 1e-3, eps=1e-5), list[Any]()
    for step in range(5):
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss = module(*deepcopy(inputs))
        loss.backward()
        gradients = [None if each.grad is None else each.grad.to_dense().clone() for each in module.parameters()]
        found.append((loss.detach(), gradients))
        optimizer.step()
    return found, module.state_dict()


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::envs.placed_models.parallel.UnknownCallWarning")  # of packed sequences
@pytest.mark.parametrize(("name", "plans"), RUNS)
def test_five_steps_of_adam_are_the_models_by_random_plans(
    name: str, plans: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With copies aside and all gradients of weights deferred that can be."""
    torch.manual_seed(0)
    module, inputs = ZOO[name]()
    graph = training_step(capture(deepcopy(module), inputs, name="zoo"))
    expected, copies = trained(deepcopy(module), inputs), 0
    for seed in range(plans):
        devices, random = 2 + seed % 3, np.random.default_rng(seed)
        problem = Problem(graph, load_cluster(f"p100x{devices}"), runtime=WAITING)
        drawn = random.integers(0, devices, graph.num_units)
        drawn = np.where(random.random(graph.num_units) < random.choice([0.0, 0.5, 0.9]), 0, drawn)
        if seed % 2:  # a module on one device as a whole
            outer = [call.module.split(".")[: 1 + seed % 3] if call is not None else [] for call in graph.calls]
            _, number = np.unique([".".join(each) for each in outer], return_inverse=True)
            drawn[graph.units[::-1]] = random.integers(0, devices, len(number))[number][::-1]
        problem, plan, _ = on_calls(problem, Plan.of_units(problem, drawn), module)
        recorder = Recorder(devices)
        with monkeypatch.context() as aside:
            aside.setattr(parallel, "SideStreams", lambda given, to=recorder: RecordedStreams(given, to))
            placed = run_by_plan(deepcopy(module), problem, plan, ["cpu"] * devices)
        torch.testing.assert_close(trained(placed, inputs), expected, rtol=1e-3, atol=1e-5)
        copies += recorder.copies
    assert copies
