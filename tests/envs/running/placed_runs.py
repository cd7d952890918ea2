"""Runs of models by random placements, op by op, and of the same models without a plan."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.plans.plan import Plan
from envs.running.adam import Adam
from envs.running.op_by_op.op_step import OpStep
from envs.running.processes import Process
from envs.running.running_step import Message, Span, StepRecord
from envs.simulation.simulator import LaidOut
from graphs.files.load import load_cluster
from graphs.problem import Problem
from tests.envs.running.trained_models import batch_of, called, example_of, program_of

STEPS = 3
# Adam divides by what a gradient has been, plus eps: where the gradient is rounding noise, with an eps of 1e-8, a step
# is as long as any, in a direction that the noise decides. With this one noise of 1e-7 moves a weight by 1e-6.
ADAM = Adam(rate=1e-2, eps=1e-3)
Numbers = dict[str, NDArray[np.float64]]


@dataclass
class Trained:
    """What some steps made; of a process, its part."""

    losses: list[float] = field(default_factory=list)
    gradients: list[Numbers] = field(default_factory=list)
    weights: Numbers = field(default_factory=dict)
    buffers: Numbers = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)  # of the last step
    messages: list[Message] = field(default_factory=list)  # of the last step


def numbers(tensors: dict[str, Tensor]) -> Numbers:
    return {name: tensor.detach().double().numpy() for name, tensor in tensors.items()}


def laid_out(name: str, devices: int, seed: int) -> LaidOut:
    """A random placement, on all devices alike or mostly on one, in the simulator's order or a random one."""
    problem = Problem(program_of(name).step, load_cluster(f"p100x{devices}"))
    random = np.random.default_rng(seed)
    units = random.integers(0, devices, problem.graph.num_units)
    if seed % 3 == 1:
        units[random.random(len(units)) < 0.7] = 0
    order = random.random(len(problem.graph)) if seed % 3 == 2 else ""
    return LaidOut.of(problem, Plan.of_units(problem, units, order=order))


@dataclass(frozen=True)
class PlacedRun:
    """A job of each process."""

    name: str
    devices: int
    seed: int

    def __call__(self, process: Process) -> Trained:
        return run_placed(self.name, laid_out(self.name, self.devices, self.seed), process.rank)


def run_placed(name: str, laid: LaidOut, rank: int) -> Trained:
    program = program_of(name)
    step = OpStep(program, laid, rank, torch.device("cpu"), ADAM)
    found, record = Trained(), StepRecord()
    for number in range(STEPS):
        leaves = batch_of(program.example, number)
        given = {leaf: leaves[leaf] for leaf in program.leaves}
        found.losses.append(step.run(given, record if number == STEPS - 1 else None))
        found.gradients.append(numbers(dict(step.gradients())))
    found.weights, found.buffers = numbers(dict(step.weights())), numbers(dict(step.buffers()))
    found.spans, found.messages = record.spans, record.messages
    return found


@cache
def run_unplaced(name: str) -> Trained:
    """The model itself, by PyTorch's own optimizer."""
    program, example = program_of(name), example_of(name)
    module, found = deepcopy(example.module), Trained()
    optimizer = ADAM.optimizer(list(module.parameters()))
    for number in range(STEPS):
        returned = called(example, module, batch_of(example, number))
        loss = torch.stack([returned[position].sum() for position in program.loss_outputs]).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        found.gradients.append(numbers({n: p.grad for n, p in module.named_parameters() if p.grad is not None}))
        optimizer.step()
        found.losses.append(float(loss.detach()))
    found.weights, found.buffers = numbers(dict(module.named_parameters())), numbers(dict(module.named_buffers()))
    return found


def assert_equal(name: str, parts: list[Trained]) -> None:
    """Processes together have made what the model makes."""
    expected, program = run_unplaced(name), program_of(name)
    np.testing.assert_allclose([sum(losses) for losses in zip(*(part.losses for part in parts), strict=True)],
                               expected.losses, rtol=1e-5, atol=1e-5)  # fmt: skip
    read = {program.step.weight_names[weight] for weight in program.step.weight_uses[:, 1].tolist()}
    for step in range(STEPS):
        gradients = {key: value for part in parts for key, value in part.gradients[step].items()}
        assert sum(len(part.gradients[step]) for part in parts) == len(gradients)  # each at one place
        assert gradients.keys() == expected.gradients[step].keys() & read
        for key, value in gradients.items():
            wanted = expected.gradients[step][key]
            np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-6 * max(1.0, float(np.abs(wanted).max())))
    for key, value in {key: value for part in parts for key, value in part.weights.items()}.items():
        np.testing.assert_allclose(value, expected.weights[key], rtol=1e-5, atol=1e-6, err_msg=key)
    buffers = {key: value for part in parts for key, value in part.buffers.items()}
    for key, value in expected.buffers.items():
        start = program.buffers[key].numpy()
        np.testing.assert_allclose(buffers.get(key, start), value, rtol=1e-4, atol=1e-6, err_msg=key)
