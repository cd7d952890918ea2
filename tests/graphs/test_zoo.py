"""Training steps as people write them are captured as PyTorch runs them, and run by a plan as they run without one."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import placelab
from envs.costs.costs import timed
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.capture.examples import Example, given_example
from graphs.capture.forward import traced_example
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from tests.graphs.test_gradient_stops import trained
from tests.graphs.zoo import ZOO, gradient_penalty
from tests.graphs.zoo_networks import Made
from tests.oracle.fake_step import held_by_step
from tests.oracle.real_flops import real_step

FAST = ["EMA teacher", "GAN, discriminator", "quantisation-aware", "reentrant checkpoints", "autocast", "tied GPT"]
STEPS = [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in ZOO]

# Sizes depend on values, which fake tensors do not have.
BY_VALUES = {"actor-critic", "packed LSTM", "mixture of experts", "GCN"}
# Products that PyTorch's counter does not see: distances, by a product inside of one operation.
UNSEEN = {"VQ-VAE": 2 * 256 * 32 * (16 + 2)}
# More is alive in a real step, of which these shares are in the graph. The operations of a custom function's own
# backward pass make tensors ("gradient reversal", whose forward pass is a view, and no op). PyTorch's loop on a CPU
# multiplies the inputs of all time steps at once, and slices the product; its decomposition, which is captured,
# multiplies them step by step ("packed LSTM").
HOLDS_MORE = {"packed LSTM": 0.93, "gradient reversal": 0.94}
# Less is alive in a real step: gradients of a tensor that several ops read are added up in place as they come, where
# the graph holds them all until the op that reads them has run.
HOLDS_LESS = {"actor-critic": 1.25}


def made(name: str) -> Made:
    torch.manual_seed(0)
    return ZOO[name]()


def captured(name: str) -> OpGraph:
    return training_step(traced_example(given_example(made(name), name, name="step")).build())


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:TF32 acceleration")  # of transformers; of oneDNN's flags
@pytest.mark.parametrize("name", STEPS)
def test_it_trains_costs_and_holds_what_a_real_step_does(name: str) -> None:
    step = captured(name)
    names, flops = real_step(*made(name))
    assert trained(step) == names
    assert step.flops.sum() == flops + UNSEEN.get(name, 0)
    problem = timed(Problem(step, load_cluster("v100:devices=1"), "adam"))
    timeline = simulate(problem, replace(Plan.of([0] * len(step)), order=PROGRAM))
    with torch.backends.mkldnn.flags(enabled=False):  # whose recurrent nets are one operation each
        held = held_by_step(Example(*made(name), {}, name), "adam", by_values=name in BY_VALUES)
    counters = 4 * len(names)  # of fused Adam
    assert held.static - counters <= timeline.held_bytes[0] <= held.static
    assert HOLDS_MORE.get(name, 0.95) * held.peak <= timeline.peak_bytes[0] <= HOLDS_LESS.get(name, 1.05) * held.peak


def steps_of_adam(model: nn.Module, args: tuple[Any, ...]) -> tuple[list[float], list[dict[str, Tensor]]]:
    """The losses and gradients of five steps."""
    optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], 1e-3, eps=1e-5)
    losses, gradients = list[float](), list[dict[str, Tensor]]()
    for seed in range(5):
        torch.manual_seed(seed)  # of dropout
        optimizer.zero_grad()
        loss = model(*args)
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: w.grad.clone() for name, w in model.named_parameters() if w.grad is not None})
        optimizer.step()
    return losses, gradients


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers
@pytest.mark.filterwarnings("ignore::envs.placed_models.parallel.UnknownCallWarning")  # of packed sequences
@pytest.mark.parametrize("name", STEPS)
def test_five_steps_by_a_plan_are_those_of_the_model(name: str) -> None:
    model, args = made(name)
    parallel = deepcopy(model)
    placed = placelab.place((deepcopy(model), args), cluster="p100x2", placer="round_robin")
    placelab.parallelize(parallel, placed, devices=["cpu", "cpu"])
    close: Any = {"rtol": 1e-5, "atol": 3e-6}
    torch.testing.assert_close(steps_of_adam(parallel, args), steps_of_adam(model, args), **close)
    torch.testing.assert_close(parallel.state_dict(), model.state_dict(), **close)


def test_a_gradient_of_a_gradient_is_refused() -> None:
    module, args = gradient_penalty()
    with pytest.raises(InputError, match=r"computes gradients in its forward pass.*use torch\.func\.grad.*zoo\.py:"):
        traced_example(Example(module, args, {}, "wgan"))
